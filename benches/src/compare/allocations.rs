//! Reports the allocations of one call. The binary `allocations` counts them, because counting slows every
//! allocation down.

use std::process::Command;

use crate::process::{Missing, sibling};
use crate::report::{Findings, Goal, Row, Side, Unit};
use crate::scale::Scale;

/// Asks the binary that counts. The counts are exact, so once is enough.
pub fn run(_: &Scale) -> Result<Findings, Missing> {
    let output = Command::new(sibling("allocations")?).output().unwrap();
    assert!(output.status.success(), "allocations: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let side = |name: &str| {
        let count = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Side::new(name, vec![count.unwrap_or_else(|| panic!("no count of {name} in {text:?}"))])
    };
    let (closure, handler) = (side("bare-closure"), side("bare-handler"));
    let excess = |what, name, bare| Row::excess(what, Unit::Allocations, &side(name), bare);
    let rows = vec![
        excess("engine, first run over the bare closure", "engine-first", &closure).goal(Goal::AtMost(12.0)),
        Row::alone("engine, replay", Unit::Allocations, &side("engine-replay")),
        excess("layer, first run over the bare handler", "layer-first", &handler).goal(Goal::AtMost(25.0)),
        excess("layer, replay over the bare handler", "layer-replay", &handler),
        excess("layer, no key over the bare handler", "layer-no-key", &handler),
    ];
    Ok(Findings { rows, ..Findings::default() })
}
