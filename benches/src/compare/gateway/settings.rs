//! Compares the gateway with settings that change its speed with the gateway as it is by default: the same load, in turns.

use super::servers::GatewayServers;
use super::wrk::{Keys, Wrk};
use super::{Loaded, check};
use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turns, progress};

const CONNECTIONS: usize = 64;
/// Every request has content of its own, so nothing is refused: what is measured is the record.
const SAME_REQUEST: &str = "[defaults]\nsame_request_window = \"30s\"\non_same_request = \"refuse\"\n";

/// Measures twice as many threads as cores, and a record of the same request.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let wrk = Wrk::find()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from) * 2;
    let plain = GatewayServers::start()?;
    let threaded = GatewayServers::start_with("", &[("ONCEWARD_THREADS", &threads.to_string())])?;
    let refusing = GatewayServers::start_with(SAME_REQUEST, &[])?;
    for servers in [&plain, &threaded, &refusing] {
        runtime().block_on(check(servers.gateway_port));
    }
    let mut rows = Vec::new();
    let threads = format!("{threads} threads / one for each core");
    let compared = [
        ("first run", &*threads, &threaded, Keys::Fresh),
        ("replay", &*threads, &threaded, Keys::Same),
        ("no key", &*threads, &threaded, Keys::None),
        ("first run", "same_request_window with refuse / without", &refusing, Keys::Distinct),
    ];
    for (what, changed, servers, keys) in compared {
        progress(&format!("{what}, {changed}"));
        let (mut set, mut default) =
            (load("set", &wrk, servers, keys, scale), load("default", &wrk, &plain, keys, scale));
        let rates = Turns::new(scale.rounds, Unit::PerSecond)
            .after_warm_up()
            .take([("set", &mut |_| set.play()), ("default", &mut |_| default.play())]);
        let named = |kind: &str| format!("{what}, {changed}{kind}");
        rows.push(Row::ratio(named(""), Unit::PerSecond, &rates[0], &rates[1]));
        rows.push(Row::ratio(named(", p99"), Unit::Milliseconds, &set.p99(scale), &default.p99(scale)));
    }
    Ok(Findings { rows, ..Findings::default() })
}

fn load<'a>(
    name: &'static str,
    wrk: &'a Wrk,
    servers: &'a GatewayServers,
    keys: Keys,
    scale: &Scale,
) -> Loaded<'a> {
    Loaded::new(name, wrk, &servers.gateway, servers.gateway_port, keys, CONNECTIONS, scale.round)
}
