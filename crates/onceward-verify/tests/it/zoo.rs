//! Every broken service of the zoo is caught by the right scenario, and every correct one passes. One seed here;
//! `./check --long` takes fifty.

use std::collections::BTreeSet;
use std::path::Path;

use onceward_verify::endpoint;
use onceward_verify::zoo::check_all::{AT_A_TIME, check_all};
use onceward_verify::zoo::table::{self, ZooService};

const SEEDS: u64 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_services_are_caught_and_right_ones_are_not_accused() {
    let program = Path::new(env!("CARGO_BIN_EXE_onceward-verify"));
    let services: Vec<&ZooService> = table::all().iter().collect();
    let (mut checks, mut wrong) = (0, Vec::new());
    check_all(&services, 0..SEEDS, AT_A_TIME, program, |service, checked| {
        checks += 1;
        if !checked.is_right() {
            wrong.push(format!("{} ({}): {}", service.name, service.what, checked.describe()));
        }
    })
    .await;
    assert!(wrong.is_empty(), "{} checks went wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(checks, services.len() as u64 * SEEDS, "each is checked with each seed");
}

#[test]
fn the_zoo_is_as_large_as_it_is_said_to_be() {
    let names: BTreeSet<&str> = table::all().iter().map(|service| service.name).collect();
    assert_eq!(names.len(), table::all().len(), "two services share a name");
    let broken = table::all().iter().filter(|service| service.caught_by.is_some()).count();
    assert_eq!((broken, table::all().len() - broken), (66, 23), "docs/verify.md says how many there are");
    let said = include_str!("../../../../docs/verify.md");
    assert!(said.contains("66 small ones with one mistake each") && said.contains("23 correct ones"));
}

/// A scenario that catches nothing may as well not be played.
#[test]
fn every_scenario_catches_somebody() {
    let catching: BTreeSet<&str> = table::all().iter().filter_map(|service| service.caught_by).collect();
    for scenario in endpoint::scenarios() {
        assert!(catching.contains(scenario.name), "{} catches nobody", scenario.name);
    }
}
