//! Compares the gateway with nginx as a plain proxy: the same upstream, the same load by wrk, a small JSON
//! `POST` each time.
//!
//! ```text
//!  wrk ─┬─▶ nginx, 2 workers ──┬─▶ nginx, 1 worker: answers 201 with a small JSON document
//!       └─▶ onceward proxy ────┘
//! ```

pub mod memory;
mod servers;
pub mod settings;
mod wrk;

use crate::load::runtime;
use std::time::Duration;

use crate::process::{Missing, Server, family_processor_micros};
use crate::report::{Findings, Goal, Row, Side, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns, progress};
pub(super) use servers::GatewayServers;
use wrk::{Keys, Wrk};

/// The 99th percentile of a first run with the fewest connections: in short rounds half of the 7.1 ms that it was before
/// huge pages were switched off, and in long rounds no more than it was then.
const P99_MS_MAX: f64 = 3.55;
const P99_MS_MAX_LONG: f64 = 33.0;

/// Measures first runs, replays and requests without a key.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let (wrk, servers) = (Wrk::find()?, GatewayServers::start()?);
    runtime().block_on(check(servers.gateway_port));
    let mut rows = Vec::new();
    for &connections in scale.connections {
        progress(&format!("{connections} connections"));
        let side =
            |name, server, port, keys| Loaded::new(name, &wrk, server, port, keys, connections, scale.round);
        let ours = |keys| side("gateway", &servers.gateway, servers.gateway_port, keys);
        let plain = |keys| side("nginx", &servers.nginx, servers.nginx_port, keys);
        let goal_of_first = if connections >= 256 { 0.5 } else { 0.45 };
        let kinds = [
            ("first run, synced receipts", Keys::Fresh, goal_of_first),
            ("replay", Keys::Same, 1.6),
            ("no key", Keys::None, 0.9),
        ];
        let [(mut first, mut first_plain), (mut replay, mut replay_plain), (mut keyless, mut keyless_plain)] =
            kinds.map(|(_, keys, _)| (ours(keys), plain(keys)));
        let rates = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
            ("first run", &mut |_| first.play()),
            ("nginx", &mut |_| first_plain.play()),
            ("replay", &mut |_| replay.play()),
            ("nginx", &mut |_| replay_plain.play()),
            ("no key", &mut |_| keyless.play()),
            ("nginx", &mut |_| keyless_plain.play()),
        ]);
        let loaded = [(&first, &first_plain), (&replay, &replay_plain), (&keyless, &keyless_plain)];
        for ((pair, rates), (what, _, least)) in loaded.into_iter().zip(rates.chunks(2)).zip(kinds) {
            let named = |what: &str| format!("{what} / nginx, {connections} connections");
            let rate = Row::ratio(named(what), Unit::PerSecond, &rates[0], &rates[1]);
            rows.push(rate.goal(Goal::AtLeast(least)));
            let (micros, other_micros) = (pair.0.processor(scale), pair.1.processor(scale));
            let what_micros = named("    processor time of the server for one");
            rows.push(Row::ratio(what_micros, Unit::Microseconds, &micros, &other_micros));
            let row =
                Row::beside(named("    p99"), Unit::Milliseconds, &pair.0.p99(scale), &pair.1.p99(scale));
            let has_goal = pair.0.keys == Keys::Fresh && connections == scale.connections[0];
            rows.push(if has_goal { row.goal(Goal::AtMost(P99_MS_MAX)) } else { row });
        }
    }
    if let Some(length) = scale.long_round {
        rows.push(long_rounds(&wrk, &servers, scale, length));
    }
    Ok(Findings { rows, ..Findings::default() })
}

/// First runs in rounds that are long enough for flushes and compactions.
fn long_rounds(wrk: &Wrk, servers: &GatewayServers, scale: &Scale, length: Duration) -> Row {
    let connections = scale.connections[0];
    progress(&format!("{connections} connections, rounds of {length:?}"));
    let side = |name, server, port| Loaded::new(name, wrk, server, port, Keys::Fresh, connections, length);
    let mut ours = side("gateway", &servers.gateway, servers.gateway_port);
    let mut plain = side("nginx", &servers.nginx, servers.nginx_port);
    Turns::new(scale.rounds, Unit::PerSecond)
        .after_warm_up()
        .take([("first run", &mut |_| ours.play()), ("nginx", &mut |_| plain.play())]);
    let what = format!("p99 of a first run in rounds of {length:?} / nginx, {connections} connections");
    Row::beside(what, Unit::Milliseconds, &ours.p99(scale), &plain.p99(scale))
        .goal(Goal::AtMost(P99_MS_MAX_LONG))
}

/// A load on one server: how fast it is, and what it costs that server.
struct Loaded<'a> {
    name: &'static str,
    wrk: &'a Wrk,
    server: &'a Server,
    port: u16,
    keys: Keys,
    connections: usize,
    length: Duration,
    /// Of each turn: processor time for a request in microseconds, and the 99th percentile in milliseconds.
    turns: Vec<(f64, f64)>,
}

impl<'a> Loaded<'a> {
    fn new(
        name: &'static str,
        wrk: &'a Wrk,
        server: &'a Server,
        port: u16,
        keys: Keys,
        connections: usize,
        length: Duration,
    ) -> Self {
        Self { name, wrk, server, port, keys, connections, length, turns: Vec::new() }
    }

    fn play(&mut self) -> Turn {
        let used = || family_processor_micros(self.server.pid()).expect("the server runs");
        let before = used();
        let turn = self.wrk.load(self.port, self.keys, self.connections, self.length);
        // wrk counts in whole seconds.
        let requests = turn.value() * self.length.as_secs().max(1) as f64;
        let p99 = turn.latency().map_or(f64::NAN, |latency| latency.at(0.99) / 1e3);
        self.turns.push(((used() - before) / requests, p99));
        turn
    }

    fn processor(&self, scale: &Scale) -> Side {
        self.side(scale, |turn| turn.0)
    }

    fn p99(&self, scale: &Scale) -> Side {
        self.side(scale, |turn| turn.1)
    }

    /// The turns that count: the first one warmed up.
    fn side(&self, scale: &Scale, of: impl Fn(&(f64, f64)) -> f64) -> Side {
        let counted = &self.turns[self.turns.len() - scale.rounds..];
        Side::new(self.name, counted.iter().map(of).collect())
    }
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
