//! Instructions of one call through the layer, counted by callgrind: a number that no other program on
//! the machine can change. Twice as many calls less as many leave the start-up out.

use std::path::Path;
use std::process::Command;

use crate::process::{Missing, program, sibling};
use crate::report::{Findings, Row, Side, Unit};
use crate::scale::Scale;
use crate::turns::Turns;

/// Calls beyond the tables' first growth.
const CALLS: u64 = 2_000;

/// Counts a first run, a replay and a request without a key, each over the bare handler.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let (valgrind, probe) = (program("valgrind", "valgrind")?, sibling("probe")?);
    let each = |kind| {
        let count = |calls| collected(&valgrind, &probe, kind, calls);
        (count(2 * CALLS) - count(CALLS)) / CALLS as f64
    };
    let [first, replay, keyless, bare] = Turns::new(scale.rounds, Unit::Instructions).take([
        ("first run", &mut |_| each("first").into()),
        ("replay", &mut |_| each("replay").into()),
        ("no key", &mut |_| each("no-key").into()),
        ("bare handler", &mut |_| each("bare").into()),
    ]);
    let excess = |what, ours: &Side| Row::excess(what, Unit::Instructions, ours, &bare);
    let rows = vec![
        excess("layer, first run over the bare handler", &first),
        excess("layer, replay over the bare handler", &replay),
        excess("layer, no key over the bare handler", &keyless),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// Instructions of a whole run of the probe.
fn collected(valgrind: &Path, probe: &Path, kind: &str, calls: u64) -> f64 {
    let output = Command::new(valgrind)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(probe)
        .args(["layer", kind, &calls.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.filter(|_| output.status.success()).unwrap_or_else(|| panic!("callgrind: {text}"))
}
