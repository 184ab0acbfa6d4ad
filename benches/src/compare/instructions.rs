//! Counts the instructions of one call, through the layer and through the engine alone, with callgrind: a number
//! that no other program on the machine can change. Start-up is left out by subtracting a run of n calls from one
//! of 2n.

use std::path::Path;
use std::process::Command;

use crate::process::{Missing, program, sibling};
use crate::report::{Findings, Row, Side, Unit, figure};
use crate::scale::Scale;
use crate::turns::progress;

/// Calls beyond the tables' first growth.
const CALLS: u64 = 2_000;

/// Counts a first run, a replay and a request without a key, each over the bare handler with the same
/// request. Two counts differ by less than one in a thousand, so once is enough.
pub fn run(_: &Scale) -> Result<Findings, Missing> {
    let (valgrind, probe) = (program("valgrind", "valgrind")?, sibling("probe")?);
    let each = |name: &str, of: &str, kind: &str| {
        let count = |calls| collected(&valgrind, &probe, [of, kind], calls);
        let each = (count(2 * CALLS) - count(CALLS)) / CALLS as f64;
        progress(&format!("{name}: {}", figure(each, Unit::Instructions)));
        Side::new(name, vec![each])
    };
    let excess = |what, ours: Side, bare: &Side| Row::excess(what, Unit::Instructions, &ours, bare);
    let (handler, keyless) =
        (each("bare handler", "layer", "bare"), each("bare handler, no key", "layer", "bare-keyless"));
    let closure = each("bare closure", "engine", "bare");
    let rows = vec![
        excess("layer, first run over the bare handler", each("first run", "layer", "first"), &handler),
        excess("layer, replay over the bare handler", each("replay", "layer", "replay"), &handler),
        excess("layer, no key over the bare handler", each("no key", "layer", "no-key"), &keyless),
        excess("engine, first run over the bare closure", each("engine", "engine", "first"), &closure),
        excess("engine, replay over the bare closure", each("engine, replay", "engine", "replay"), &closure),
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
