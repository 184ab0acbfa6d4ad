//! Scanning by scope, operation and state: exact filters, and pages that cover each record once.

use std::collections::BTreeMap;

use onceward::{Found, Id, Scan, ScanOf, Seen, State, Version};

use super::trial::{Checked, FAR, Trial, ensure, held, id, id_of, record};

const EVERYTHING: ScanOf = ScanOf::Matching { scope: None, operation: None, state: None };

pub(super) async fn empty_store_is_empty(trial: Trial) -> Checked {
    let found = trial.pages(EVERYTHING, 10, 3).await?;
    ensure!(found.is_empty(), "an empty store has {found:?}");
    Ok(())
}

pub(super) async fn each_filter_filters(trial: Trial) -> Checked {
    let mut all = Vec::new();
    for scope in ["alpha", "beta", "gamma"] {
        for operation in ["GET /a", "POST /a", "POST /b"] {
            for state in State::ALL {
                let id = id_of(scope, operation, state.name());
                trial.create(&id, record(state, Some(FAR), "x")).await?;
                all.push((id, state));
            }
        }
    }
    for scope in [None, Some("beta"), Some("delta")] {
        for operation in [None, Some("POST /a"), Some("GET /b")] {
            for state in [None].into_iter().chain(State::ALL.map(Some)) {
                let expected: Vec<Id> = all
                    .iter()
                    .filter(|(id, _)| scope.is_none_or(|scope| id.scope() == scope))
                    .filter(|(id, _)| operation.is_none_or(|operation| id.operation() == operation))
                    .filter(|(_, is)| state.is_none_or(|state| *is == state))
                    .map(|(id, _)| id.clone())
                    .collect();
                matches_exactly(&trial, matching(scope, operation, state), &expected).await?;
            }
        }
    }
    Ok(())
}

/// No pattern, no folding of case, no prefix, no padding.
pub(super) async fn filters_are_exact(trial: Trial) -> Checked {
    let names =
        ["a", "A", "ab", "a ", " a", "a%", "a_", "%", "_", "*", "a*", "a?", "[a]", "a'", "a\"", "a\\", "a:"];
    for name in names {
        trial.create(&id_of(name, "operation", "key"), held("x")).await?;
        trial.create(&id_of("scope", name, "key"), held("x")).await?;
    }
    for name in names {
        let scope = [id_of(name, "operation", "key")];
        matches_exactly(&trial, matching(Some(name), None, None), &scope).await?;
        let operation = [id_of("scope", name, "key")];
        matches_exactly(&trial, matching(None, Some(name), None), &operation).await?;
    }
    Ok(())
}

pub(super) async fn pages_cover_everything_once(trial: Trial) -> Checked {
    let ids: Vec<Id> = (0..100).map(id).collect();
    for id in &ids {
        trial.create(id, held("x")).await?;
    }
    for limit in [1, 9, 100, 1000] {
        let found = trial.pages(EVERYTHING, limit, 210).await?;
        once_each(&found, &ids)?;
    }
    Ok(())
}

/// Records come, change and go between two pages; those that stay as they are still show, and once.
pub(super) async fn pages_cover_beside_other_writes(trial: Trial) -> Checked {
    let stay: Vec<Id> = (0..60).map(|number| id(number * 10)).collect();
    for id in &stay {
        trial.create(id, held("stays")).await?;
    }
    let mut others: BTreeMap<usize, Version> = BTreeMap::new();
    for number in (0..60).map(|number| number * 10 + 5) {
        others.insert(number, trial.create(&id(number), held("other")).await?);
    }
    let mut query = Scan { of: EVERYTHING, after: None, limit: 5 };
    let mut found = Vec::new();
    for round in 0..400 {
        let page = trial.page(&query).await?;
        found.extend(page.found.into_iter().filter(|(_, found)| &found.bytes[..] == b"stays"));
        let Some(next) = page.next else {
            return once_each(&found, &stay);
        };
        query.after = Some(next);
        // One goes, one changes, and for a while one is new in each round, spread over all places.
        if let Some((number, version)) = others.pop_first() {
            trial.remove(&id(number), version).await?;
        }
        if let Some((number, version)) = others.pop_last() {
            let version = trial.put(&id(number), Seen::Version(version), held("changed")).await?;
            others.insert(number, version);
        }
        if round < 30 {
            let number = round * 83 % 600 / 10 * 10 + 1 + round % 4;
            trial.swap_one(&id(number), Seen::Absent, Some(held("new"))).await?;
        }
    }
    ensure!(false, "the scan did not end");
    Ok(())
}

pub(super) async fn found_is_as_loaded(trial: Trial) -> Checked {
    for (number, state) in State::ALL.into_iter().enumerate() {
        let written = record(state, (number % 2 == 0).then_some(FAR), state.name());
        let version = trial.create(&id(number), written.clone()).await?;
        if number == 1 {
            trial.put(&id(number), Seen::Version(version), record(State::Gone, None, "again")).await?;
        }
    }
    for (id, found) in trial.pages(EVERYTHING, 10, 3).await? {
        let loaded = trial.find(&id).await?;
        let same = (found.version, found.state, &found.bytes)
            == (loaded.version, loaded.state, &loaded.bytes)
            && std::mem::discriminant(&found.due) == std::mem::discriminant(&loaded.due);
        ensure!(same, "{id:?}: scanned {found:?}, loaded {loaded:?}");
    }
    Ok(())
}

fn matching(scope: Option<&str>, operation: Option<&str>, state: Option<State>) -> ScanOf {
    ScanOf::Matching { scope: scope.map(str::to_owned), operation: operation.map(str::to_owned), state }
}

async fn matches_exactly(trial: &Trial, of: ScanOf, expected: &[Id]) -> Checked {
    let named = format!("{of:?}");
    let found = trial.pages(of, 7, 60).await?;
    once_each(&found, expected).map_err(|wrong| super::trial::Wrong(format!("{named}: {wrong}")))
}

fn once_each(found: &[(Id, Found)], expected: &[Id]) -> Checked {
    let mut found: Vec<&Id> = found.iter().map(|(id, _)| id).collect();
    found.sort();
    let mut expected: Vec<&Id> = expected.iter().collect();
    expected.sort();
    for pair in found.windows(2) {
        ensure!(pair[0] != pair[1], "{:?} came twice", pair[0]);
    }
    for id in &expected {
        ensure!(found.binary_search(id).is_ok(), "{id:?} was skipped");
    }
    ensure!(found.len() == expected.len(), "found {found:?}, expected {expected:?}");
    Ok(())
}
