//! Compares the embedded store with the memory store: the same swaps by the same clock must give the same
//! answers to the last version, with the clock jumping and the folder closed and opened in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Clock, Due, Found, Id, Record, Seen, State, Store, Swap, Swapped};
use onceward_stores::{EmbeddedStore, MemoryStore};

use crate::support::*;

const KEYS: u64 = 24;
const STEPS: u64 = 600;

#[test]
fn both_stores_answer_alike() {
    for seed in 1..=usual_or_long(2, 40) {
        run(seed);
    }
}

fn run(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let model = MemoryStore::new_with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let mut store = open_at(folder.path(), &clock);
    let mut opened_at = onceward::Version(0);
    let mut highest = onceward::Version(0);
    let mut dice = Dice::new(seed);
    for step in 0..STEPS {
        let context = format!("seed {seed}, step {step}");
        match dice.below(12) {
            0 => clock.advance(Duration::from_millis(dice.below(3000))),
            1 if dice.below(4) == 0 => clock.set(NOON_US - dice.below(10_000_000)),
            2 if dice.below(10) == 0 => {
                store = reopen(store, folder.path(), &clock);
                opened_at = highest;
            }
            _ => {}
        }
        let batch = batch(&model, &mut dice);
        let (expected, answers) =
            (block_on(model.swap(&batch)).unwrap(), block_on(store.swap(&batch)).unwrap());
        for (expected, answer) in expected.into_iter().zip(answers) {
            match (expected, answer) {
                (Swapped::Won(expected), Swapped::Won(answer)) => {
                    assert_eq!(expected, answer, "{context}");
                    highest = highest.max(answer);
                }
                (Swapped::Lost(expected), Swapped::Lost(answer)) => {
                    assert_alike(expected, answer, opened_at, &context);
                }
                (expected, answer) => panic!("{context}: {expected:?} against {answer:?}"),
            }
        }
        let ids: Vec<Id> = (0..KEYS).map(id).collect();
        let (expected, answers) = (block_on(model.load(&ids)).unwrap(), block_on(store.load(&ids)).unwrap());
        // What should be due: over by the model, or held since before the last opening.
        let mut due: Vec<String> = Vec::new();
        for (id, (expected, answer)) in ids.iter().zip(expected.into_iter().zip(answers)) {
            let (expected, answer) = (expected.unwrap(), answer.unwrap());
            if answer.as_ref().is_some_and(|found| found.due.is_over()) {
                due.push(id.key().to_owned());
            }
            assert_alike(expected, answer, opened_at, &context);
        }
        let limit = 1 + usize::try_from(dice.below(9)).unwrap();
        let mut scanned = scan_keys(&store, &DUE, limit);
        scanned.sort();
        due.sort();
        assert_eq!(scanned, due, "{context}");
        for of in State::ALL.map(in_state).into_iter().chain([everything()]) {
            let sorted = |store: &dyn Store| {
                let mut keys = scan_keys(store, &of, limit);
                keys.sort();
                keys
            };
            assert_eq!(sorted(&model), sorted(&store), "{of:?}, {context}");
        }
    }
}

/// Some ids, with what is there or something else seen, and something or nothing new.
fn batch(model: &MemoryStore, dice: &mut Dice) -> Vec<Swap> {
    let mut ids: Vec<Id> = (0..=dice.below(4)).map(|_| id(dice.below(KEYS))).collect();
    ids.sort();
    ids.dedup();
    let found = block_on(model.load(&ids)).unwrap();
    ids.into_iter()
        .zip(found)
        .map(|(id, found)| {
            let version = found.unwrap().map(|found| found.version);
            let seen = match (dice.below(5), version) {
                (0, _) | (_, None) => Seen::Absent,
                (1, Some(version)) => Seen::Version(onceward::Version(version.0 - 1)),
                (_, Some(version)) => Seen::Version(version),
            };
            let state = State::ALL[usize::try_from(dice.below(6)).unwrap()];
            let due_in = (dice.below(4) > 0).then(|| Duration::from_millis(dice.below(4000)));
            let ends_with_writer = dice.below(2) == 0;
            // The bytes tell which kind it is.
            let bytes = vec![u8::from(ends_with_writer); 1 + usize::try_from(dice.below(9)).unwrap()];
            let record =
                Record::new(state, bytes).with_due_in(due_in).with_ends_with_writer(ends_with_writer);
            Swap { id, seen, new: (dice.below(5) > 0).then_some(record) }
        })
        .collect()
}

/// Equal, except that runs from before the last opening are over.
fn assert_alike(expected: Option<Found>, answer: Option<Found>, opened_at: onceward::Version, context: &str) {
    let lost_its_owner = expected
        .as_ref()
        .is_some_and(|held| held.state == State::Held && held.bytes[0] == 1 && held.version <= opened_at);
    if lost_its_owner {
        let (mut expected, answer) = (expected.unwrap(), answer.unwrap());
        assert!(matches!(answer.due, Due::Over(_)), "{context}: {answer:?}");
        expected.due = answer.due;
        assert_eq!(expected, answer, "{context}");
    } else {
        assert_eq!(expected, answer, "{context}");
    }
}

fn reopen(store: EmbeddedStore, path: &Path, clock: &Arc<HandClock>) -> EmbeddedStore {
    drop(store);
    open_at(path, clock)
}
