//! Checks every service of the zoo with every seed, several at a time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::table::Animal;
use super::visit::{Visit, visit};

/// Visits at a time, unless asked otherwise: they mostly wait.
pub const AT_A_TIME: u16 = 8;

/// Visits each of these with each of these seeds, `at_a_time` together, and shows each visit when it is over.
/// Those that are to be killed are served by `program`.
///
/// Dropping the future ends the visits that are going on, and what they started.
pub async fn tour(
    animals: &[&'static Animal],
    seeds: Range<u64>,
    at_a_time: u16,
    program: &Path,
    mut show: impl FnMut(&'static Animal, Visit),
) {
    let program: Arc<Path> = program.into();
    let mut visits = JoinSet::new();
    // All of them with one seed and then with the next, so that those who need much are not visited together.
    let mut waiting = seeds.flat_map(|seed| animals.iter().map(move |animal| (*animal, seed)));
    loop {
        for (animal, seed) in waiting.by_ref().take(usize::from(at_a_time) - visits.len()) {
            let program = program.clone();
            visits.spawn(async move { (animal, visit(animal, &program, seed).await) });
        }
        let Some(over) = visits.join_next().await else { return };
        let (animal, visit) = over.expect("no visit panics");
        show(animal, visit);
    }
}
