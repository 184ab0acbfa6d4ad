//! Checks of scans by scope, operation, key and state: exact filters, and pages that cover each record once.

use std::collections::BTreeMap;

use onceward::{Filter, Id, Scan, ScanTarget, Seen, State, TextMatch, Version};

use super::trial::{
    Checked, FAR, Trial, Wrong, creation, ensure, everything, held, id, id_of, once_each, record, sorted,
};

/// Words that a pattern, a collation or a quoting rule could take for one another.
const ALIKE: [&str; 19] = [
    "a", "A", "ab", "a ", " a", "a%", "a_", "%", "_", "*", "a*", "a?", "[a]", "a'", "a\"", "a\\", "a:", "~",
    "a~",
];

pub(super) async fn empty_store_is_empty(trial: Trial) -> Checked {
    let found = trial.pages(everything(), 10, 3).await?;
    ensure!(found.is_empty(), "an empty store has {found:?}");
    Ok(())
}

/// Every combination of filters, those that match nothing among them.
pub(super) async fn each_filter_filters(trial: Trial) -> Checked {
    let mut all = Vec::new();
    for (s, scope) in ["alpha", "beta", "gamma"].into_iter().enumerate() {
        for (o, operation) in ["GET /a", "POST /a", "POST /a/b"].into_iter().enumerate() {
            for key in 0..6 {
                // Each key has every state somewhere, so that no filter stands for another.
                let state = State::ALL[(s + 2 * o + key) % State::ALL.len()];
                all.push((id_of(scope, operation, &format!("key-{key}")), state));
            }
        }
    }
    let batch = all.iter().map(|(id, state)| creation(id, record(*state, Some(FAR), "x")));
    trial.swap(&sorted(batch.collect())).await?;
    let operations = [is("POST /a"), is("GET /b"), starts("POST /a"), starts("P"), starts("POST /b")];
    for scope in [None, Some("beta"), Some("delta")] {
        for operation in [None].into_iter().chain(operations.iter().map(Some)) {
            for key in [None, Some("key-1"), Some("missing")] {
                for state in [None].into_iter().chain(State::ALL.map(Some)) {
                    let filter = Filter::default()
                        .with_scope(scope.map(str::to_owned))
                        .with_operation(operation.cloned())
                        .with_key(key.map(str::to_owned))
                        .with_state(state);
                    let expected = all.iter().filter(|(id, is)| filter.matches(id, *is));
                    let expected: Vec<Id> = expected.map(|(id, _)| id.clone()).collect();
                    matches_exactly(&trial, filter, &expected).await?;
                }
            }
        }
    }
    Ok(())
}

/// No pattern, no folding of case, no prefix, no padding.
pub(super) async fn filters_are_exact(trial: Trial) -> Checked {
    for word in ALIKE {
        trial.create(&id_of(word, "operation", "key"), held("x")).await?;
        trial.create(&id_of("scope", word, "key"), held("x")).await?;
        trial.create(&id_of("scope", "operation", word), held("x")).await?;
    }
    for word in ALIKE {
        let some = Some(word.to_owned());
        let filter = Filter::default().with_scope(some.clone());
        matches_exactly(&trial, filter, &[id_of(word, "operation", "key")]).await?;
        let filter = Filter::default().with_operation(is(word));
        matches_exactly(&trial, filter, &[id_of("scope", word, "key")]).await?;
        let filter = Filter::default().with_key(some);
        matches_exactly(&trial, filter, &[id_of("scope", "operation", word)]).await?;
    }
    Ok(())
}

/// A prefix is text and no pattern. It may be the whole operation, and it reaches over the mark of a step.
pub(super) async fn prefixes_are_exact(trial: Trial) -> Checked {
    let mut all: Vec<Id> = ALIKE.map(|word| id_of("scope", word, "key")).to_vec();
    all.extend(ALIKE.map(|word| id_of("scope", &format!("{word}{word}/more"), "key")));
    all.push(id_of("scope", "a", "key").step("step")?);
    for id in &all {
        trial.create(id, held("x")).await?;
    }
    for prefix in ALIKE.into_iter().chain(["a#", "a#st", "aa/more", "aa/more!", ""]) {
        let expected: Vec<Id> = all.iter().filter(|id| id.operation().starts_with(prefix)).cloned().collect();
        matches_exactly(&trial, Filter::default().with_operation(starts(prefix)), &expected).await?;
    }
    Ok(())
}

/// A worker's look and an operator's list must not cost what is kept: each of these is found among hundreds of
/// done records without a page for every few of those.
pub(super) async fn open_states_are_found_beside_done_ones(trial: Trial) -> Checked {
    let kept = (0..600).map(|number| {
        let state = if number % 5 == 0 { State::Gone } else { State::Done };
        creation(&id(number), record(state, Some(FAR), "kept"))
    });
    trial.swap(&kept.collect::<Vec<_>>()).await?;
    for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
        let last = id_of("scope", "operation", &format!("z-{state}"));
        trial.create(&last, record(state, Some(FAR), "open")).await?;
        for operation in [None, Some(is("operation")), Some(starts("oper"))] {
            let scope = operation.as_ref().map(|_| "scope".to_owned());
            let filter = Filter::default().with_scope(scope).with_operation(operation).with_state(state);
            let named = format!("{filter:?}");
            let found = trial.pages(ScanTarget::Matching(filter), 1, 12).await?;
            once_each(&found, std::slice::from_ref(&last))
                .map_err(|wrong| Wrong(format!("{named}: {wrong}")))?;
        }
    }
    Ok(())
}

/// The index of states must follow every write.
pub(super) async fn a_changed_state_is_found_under_the_new_one(trial: Trial) -> Checked {
    let id = id(1);
    let mut version = trial.create(&id, record(State::Waiting, Some(FAR), "x")).await?;
    for now in State::ALL.into_iter().chain([State::Held, State::Waiting, State::Dead]) {
        version = trial.put(&id, Seen::Version(version), record(now, Some(FAR), "x")).await?;
        for state in State::ALL {
            let expected = if state == now { std::slice::from_ref(&id) } else { &[] };
            matches_exactly(&trial, Filter::default().with_state(state), expected).await?;
        }
    }
    trial.remove(&id, version).await?;
    for state in State::ALL {
        matches_exactly(&trial, Filter::default().with_state(state), &[]).await?;
    }
    Ok(())
}

pub(super) async fn pages_cover_everything_once(trial: Trial) -> Checked {
    let ids: Vec<Id> = (0..100).map(id).collect();
    for id in &ids {
        trial.create(id, held("x")).await?;
    }
    for limit in [1, 9, 100, 1000] {
        let found = trial.pages(everything(), limit, 210).await?;
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
    let mut query = Scan::new(everything(), 5);
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
    for (id, found) in trial.pages(everything(), 10, 3).await? {
        let loaded = trial.find(&id).await?;
        let same = (found.version, found.state, &found.bytes)
            == (loaded.version, loaded.state, &loaded.bytes)
            && std::mem::discriminant(&found.due) == std::mem::discriminant(&loaded.due);
        ensure!(same, "{id:?}: scanned {found:?}, loaded {loaded:?}");
    }
    Ok(())
}

fn is(operation: &str) -> TextMatch {
    TextMatch::Is(operation.to_owned())
}

fn starts(prefix: &str) -> TextMatch {
    TextMatch::StartsWith(prefix.to_owned())
}

async fn matches_exactly(trial: &Trial, filter: Filter, expected: &[Id]) -> Checked {
    let named = format!("{filter:?}");
    let found = trial.pages(ScanTarget::Matching(filter), 20, 30).await?;
    once_each(&found, expected).map_err(|wrong| Wrong(format!("{named}: {wrong}")))
}
