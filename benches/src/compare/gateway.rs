//! Compares the gateway with nginx as a plain proxy: the same upstream, the same load by wrk, a small JSON
//! `POST` each time.
//!
//! ```text
//!  wrk ─┬─▶ nginx, 2 workers ──┬─▶ nginx, 1 worker: answers 201 with a small JSON document
//!       └─▶ onceward proxy ────┘
//! ```

pub mod memory;
mod servers;
mod wrk;

use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turns, progress};
use servers::GatewayServers;
use wrk::{Keys, Wrk};

/// Measures first runs, replays and requests without a key.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let (wrk, servers) = (Wrk::find()?, GatewayServers::start()?);
    runtime().block_on(check(servers.gateway_port));
    let mut rows = Vec::new();
    for &connections in scale.connections {
        progress(&format!("{connections} connections"));
        let load = |port, keys| wrk.load(port, keys, connections, scale.round);
        let (gateway, nginx) = (servers.gateway_port, servers.nginx_port);
        let [first, nginx_first, replay, nginx_replay, keyless, nginx_keyless] =
            Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
                ("first run", &mut |_| load(gateway, Keys::Fresh)),
                ("nginx", &mut |_| load(nginx, Keys::Fresh)),
                ("replay", &mut |_| load(gateway, Keys::Same)),
                ("nginx", &mut |_| load(nginx, Keys::Same)),
                ("no key", &mut |_| load(gateway, Keys::None)),
                ("nginx", &mut |_| load(nginx, Keys::None)),
            ]);
        let row = |what: &str, ours, other, least| {
            let what = format!("{what} / nginx, {connections} connections");
            Row::ratio(what, Unit::PerSecond, ours, other).goal(Goal::AtLeast(least))
        };
        rows.push(row("first run, synced receipts", &first, &nginx_first, 0.5));
        rows.push(row("replay", &replay, &nginx_replay, 1.5));
        rows.push(row("no key", &keyless, &nginx_keyless, 0.75));
    }
    Ok(Findings { rows, ..Findings::default() })
}

/// That the load means what it says: the first request with a key is run, the second one replayed.
async fn check(port: u16) {
    let client = reqwest::Client::new();
    for replayed in [false, true] {
        let request = client.post(format!("http://127.0.0.1:{port}/charges")).body("{}");
        let answer = request.header("idempotency-key", "checked").send().await.unwrap();
        assert_eq!(answer.status(), 201);
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
    }
}
