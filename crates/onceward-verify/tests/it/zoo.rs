//! Every broken service of the zoo is caught by the right scenario, and no right one is accused. A few seeds
//! here; fifty with `ONCEWARD_LONG`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use onceward_verify::endpoint;
use onceward_verify::zoo::table::{self, Animal};
use onceward_verify::zoo::visit::visit;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Visits at a time. They mostly wait, and the machine must not be so busy that nothing is ever simultaneous.
const AT_A_TIME: usize = 6;

fn seeds() -> u64 {
    if std::env::var_os("ONCEWARD_LONG").is_some() { 50 } else { 2 }
}

async fn tour(animals: impl Iterator<Item = &'static Animal>) {
    let program = Path::new(env!("CARGO_BIN_EXE_onceward-verify"));
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut visits = JoinSet::new();
    for animal in animals {
        for seed in 0..seeds() {
            let places = places.clone();
            visits.spawn(async move {
                let _place = places.acquire().await.expect("nobody closes the zoo");
                (animal, visit(animal, program, seed).await)
            });
        }
    }
    let mut wrong = Vec::new();
    while let Some(visit) = visits.join_next().await {
        let (animal, visit) = visit.expect("no visit panics");
        if !visit.is_right() {
            wrong.push(format!("{} ({}): {}", animal.name, animal.what, visit.story()));
        }
    }
    assert!(wrong.is_empty(), "{} visits went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_services_are_caught_and_right_ones_are_not_accused() {
    tour(table::all().iter()).await;
}

#[test]
fn the_zoo_is_as_large_as_it_is_said_to_be() {
    let names: BTreeSet<&str> = table::all().iter().map(|animal| animal.name).collect();
    assert_eq!(names.len(), table::all().len(), "two animals share a name");
    let broken = table::all().iter().filter(|animal| animal.caught_by.is_some()).count();
    assert!(broken >= 20, "only {broken} are broken");
    assert!(table::all().len() - broken >= 5, "only {} are right", table::all().len() - broken);
}

/// A scenario that catches nothing may as well not be played.
#[test]
fn every_scenario_catches_somebody() {
    let catching: BTreeSet<&str> = table::all().iter().filter_map(|animal| animal.caught_by).collect();
    for scenario in endpoint::scenarios() {
        assert!(catching.contains(scenario.name), "{} catches nobody", scenario.name);
    }
}
