//! Checks every service of the zoo with every seed, several at a time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::check_service::{CheckedService, check_service};
use super::table::ZooService;

/// Checks at a time, unless asked otherwise: they mostly wait.
pub const AT_A_TIME: u16 = 16;

/// Checks each of these with each of these seeds, `at_a_time` together, and shows each result when it is there.
/// Those that are to be killed are served by `program`.
///
/// Dropping the future ends the checks that are going on, and what they started.
pub async fn check_all(
    services: &[&'static ZooService],
    seeds: Range<u64>,
    at_a_time: u16,
    program: &Path,
    mut show: impl FnMut(&'static ZooService, CheckedService),
) {
    let program: Arc<Path> = program.into();
    let mut checks = JoinSet::new();
    // All of them with one seed and then with the next, so that those who need much do not run together.
    let mut waiting = seeds.flat_map(|seed| services.iter().map(move |service| (*service, seed)));
    loop {
        for (service, seed) in waiting.by_ref().take(usize::from(at_a_time) - checks.len()) {
            let program = program.clone();
            checks.spawn(async move { (service, check_service(service, &program, seed).await) });
        }
        let Some(over) = checks.join_next().await else { return };
        let (service, checked) = over.expect("no check panics");
        show(service, checked);
    }
}
