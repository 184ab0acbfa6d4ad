//! Counts the instructions of one call with callgrind, through the layer, through the engine alone and through the
//! client: a number that no other program on the machine can change. Start-up is left out by subtracting a run of n
//! calls from one of 2n.
//!
//! The goals of layer and engine are what the code before the second version of the protocol needed for the same
//! requests (commit abfd601), and a twentieth more. A change that costs more is a regression.

use std::path::Path;
use std::process::Command;

use super::client;
use crate::process::{Missing, program, sibling};
use crate::report::{Findings, Goal, Row, Side, Unit, figure};
use crate::scale::Scale;
use crate::turns::progress;

/// Calls beyond the tables' first growth.
const CALLS: u64 = 2_000;
/// Calls of the client: as many for each of its callers.
const CALLS_OF_CLIENT: u64 = 40 * client::CALLERS as u64;

const FIRST_RUN_MAX: f64 = 20_204.0;
const REPLAY_MAX: f64 = 9_193.0;
const NO_KEY_MAX: f64 = 486.0;
const ENGINE_MAX: f64 = 8_673.0;
/// Of bare reqwest: 0.95 and 1.73 when these goals were set.
const CLIENT_MAX: f64 = 1.0;
const JOURNAL_MAX: f64 = 1.8;

/// Counts a first run, a replay and a request without a key, each over the bare handler with the same
/// request; and a call of the client over one of bare reqwest. Two counts of the first differ by less than one in a
/// thousand, so once is enough; with a journal a few in a hundred, because threads group what they write.
pub fn run(_: &Scale) -> Result<Findings, Missing> {
    let (valgrind, probe) = (program("valgrind", "valgrind")?, sibling("probe")?);
    let counted = |name: &str, of: &str, kind: &str, calls: u64| {
        let count = |calls| collected(&valgrind, &probe, [of, kind], calls);
        let each = (count(2 * calls) - count(calls)) / calls as f64;
        progress(&format!("{name}: {}", figure(each, Unit::Instructions)));
        Side::new(name, vec![each])
    };
    let each = |name: &str, of: &str, kind: &str| counted(name, of, kind, CALLS);
    let excess = |what, ours: Side, bare: &Side| Row::excess(what, Unit::Instructions, &ours, bare);
    let (handler, keyless) =
        (each("bare handler", "layer", "bare"), each("bare handler, no key", "layer", "bare-keyless"));
    let distinct = each("first run of another request", "layer", "distinct");
    let closure = each("bare closure", "engine", "bare");
    let of_client = |name, kind| counted(name, "client", kind, CALLS_OF_CLIENT);
    let by_hand = of_client("bare reqwest", "bare");
    let ratio = |what, ours: Side| Row::ratio(what, Unit::Instructions, &ours, &by_hand);
    let rows = vec![
        excess("layer, first run over the bare handler", each("first run", "layer", "first"), &handler)
            .goal(Goal::AtMost(FIRST_RUN_MAX)),
        excess("layer, replay over the bare handler", each("replay", "layer", "replay"), &handler)
            .goal(Goal::AtMost(REPLAY_MAX)),
        excess("layer, no key over the bare handler", each("no key", "layer", "no-key"), &keyless)
            .goal(Goal::AtMost(NO_KEY_MAX)),
        excess(
            "layer, same request counted, over a first run",
            each("same request counted", "layer", "distinct-counted"),
            &distinct,
        ),
        excess(
            "layer, same request refused, over a first run",
            each("same request refused", "layer", "distinct-refused"),
            &distinct,
        ),
        excess("engine, first run over the bare closure", each("engine", "engine", "first"), &closure)
            .goal(Goal::AtMost(ENGINE_MAX)),
        excess("engine, replay over the bare closure", each("engine, replay", "engine", "replay"), &closure),
        ratio("client / bare reqwest", of_client("client", "plain")).goal(Goal::AtMost(CLIENT_MAX)),
        ratio("client with a synced journal / bare reqwest", of_client("journal", "journal"))
            .goal(Goal::AtMost(JOURNAL_MAX)),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// Instructions of a whole run of the probe.
fn collected(valgrind: &Path, probe: &Path, [of, kind]: [&str; 2], calls: u64) -> f64 {
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(probe)
        .args([of, kind, &calls.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.filter(|_| output.status.success()).unwrap_or_else(|| panic!("callgrind: {text}"))
}
