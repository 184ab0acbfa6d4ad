//! Every broken variant is caught by each suite that must catch it, and each promise of the checker is broken by some
//! variant.

use std::collections::BTreeSet;

use onceward_verify::broken::fronts::FrontFlaw;
use onceward_verify::broken::search::{Catcher, SEEDS_MAX, search};
use onceward_verify::broken::table::{self, Flaw};
use onceward_verify::sim::checker::{ENDS, PROMISES};
use onceward_verify::sim::play;

/// In these most promises are broken by one variant or another.
const FEW_SEEDS: u64 = 25;
/// Until a variant breaks a promise that it breaks in one simulation of two hundred.
const RARE_SEEDS: u64 = 2_000;

#[test]
fn no_variant_survives() {
    let mut survivors = Vec::new();
    for broken in table::all() {
        for catcher in broken.caught_by {
            if search(broken, *catcher, SEEDS_MAX, 2).is_none() {
                survivors.push(format!("{} ({catcher}): {}", broken.name, broken.wrong));
            }
        }
    }
    assert!(survivors.is_empty(), "these survived:\n{}", survivors.join("\n"));
}

#[test]
fn every_variant_is_hunted_and_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = table::all().map(|broken| broken.name).collect();
    assert_eq!(names.len(), table::all().count(), "two variants share a name");
    assert!(names.len() >= 80, "there are only {} variants", names.len());
    for broken in table::all() {
        assert!(!broken.caught_by.is_empty(), "{} is hunted by nobody", broken.name);
        let by_suite = broken.caught_by.contains(&Catcher::Conformance);
        assert!(!by_suite || matches!(broken.flaw, Flaw::Store(_)), "{}: the suite sees stores", broken.name);
    }
}

/// A catcher that catches everything would pass the test above.
#[test]
fn a_variant_without_a_flaw_survives() {
    let sound = table::Broken { flaw: Flaw::Rules(onceward::decide), ..*table::all().next().expect("one") };
    let catch = search(&sound, Catcher::Simulator, 200, 2);
    assert!(catch.is_none(), "the real engine was caught: {catch:?}");
}

/// The alarm rings for each promise: one that no variant ever breaks may as well not be watched over.
#[test]
fn every_promise_is_broken_by_some_variant() {
    let mut quiet: BTreeSet<&str> = PROMISES.into_iter().collect();
    let simulated = || table::all().filter(|broken| broken.caught_by.contains(&Catcher::Simulator));
    for broken in simulated() {
        for seed in 0..FEW_SEEDS {
            let outcome = play(seed, &broken.flaw.variant());
            for violation in &outcome.violations {
                quiet.remove(violation.rule);
            }
            // A simulation that never ends takes long, and so will the next one of this variant.
            if outcome.violations.iter().any(|violation| violation.rule == ENDS) {
                break;
            }
        }
    }
    // What takes a rare coincidence shows in the simulation in which its own variant is caught.
    for broken in simulated() {
        if quiet.is_empty() {
            return;
        }
        if let Some(catch) = search(broken, Catcher::Simulator, SEEDS_MAX, 2) {
            quiet.remove(&*catch.by);
        }
    }
    // Or in some simulation of a variant that breaks another promise more often.
    for broken in simulated().filter(|broken| broken.flaw.variant().front != FrontFlaw::None) {
        for seed in 0..RARE_SEEDS {
            for violation in play(seed, &broken.flaw.variant()).violations {
                quiet.remove(violation.rule);
            }
            if quiet.is_empty() {
                return;
            }
        }
    }
    assert!(quiet.is_empty(), "nothing ever breaks these promises: {quiet:#?}");
}
