//! Checks of scans for the steps of an intent: they return its direct steps, and no record with a similar name.

use onceward::{Id, Scan, ScanTarget, Seen, State};

use super::trial::{Checked, FAR, Trial, Wrong, creation, ensure, held, id_of, once_each, record, sorted};

/// A small tree, and neighbours whose ids are like those in it.
pub(super) async fn only_those_directly_below(trial: Trial) -> Checked {
    let parent = id_of("scope", "POST /orders", "key");
    let (charge, email) = (parent.step("charge")?, parent.step("email")?);
    let (send, log) = (email.step("send")?, email.step("log")?);
    let deepest = send.step("connect")?;
    let alike = [
        id_of("scope", "POST /orders", "key2").step("charge")?,
        id_of("scope", "POST /orders", "ke").step("charge")?,
        id_of("scope", "POST /orders/7", "key").step("charge")?,
        id_of("scope", "POST /order", "key").step("charge")?,
        id_of("scope", "post /orders", "key").step("charge")?,
        id_of("scope", "POST /orders", "KEY").step("charge")?,
        id_of("scope2", "POST /orders", "key").step("charge")?,
        id_of("Scope", "POST /orders", "key").step("charge")?,
        id_of("scope", "POST /orders charge", "key"),
        id_of("scope", "POST /orders", "key#charge"),
        id_of("scope#POST /orders", "charge", "key"),
    ];
    let tree = [&parent, &charge, &email, &send, &log, &deepest];
    let all = tree.into_iter().chain(&alike).map(|id| creation(id, held("x")));
    trial.swap(&sorted(all.collect())).await?;
    steps_are(&trial, &parent, &[charge.clone(), email.clone()]).await?;
    steps_are(&trial, &email, &[send.clone(), log]).await?;
    steps_are(&trial, &send, std::slice::from_ref(&deepest)).await?;
    steps_are(&trial, &charge, &[]).await?;
    steps_are(&trial, &deepest, &[]).await?;
    for step in &alike[..8] {
        steps_are(&trial, &step.parent().expect("a step"), std::slice::from_ref(step)).await?;
    }
    Ok(())
}

/// Steps are listed by their own ids: whether there is a record of the parent does not matter.
pub(super) async fn of_an_absent_parent(trial: Trial) -> Checked {
    let parent = id_of("scope", "operation", "key");
    steps_are(&trial, &parent, &[]).await?;
    let (first, nested) = (parent.step("first")?, parent.step("absent")?.step("nested")?);
    trial.create(&first, held("x")).await?;
    trial.create(&nested, held("x")).await?;
    steps_are(&trial, &parent, std::slice::from_ref(&first)).await?;
    let version = trial.create(&parent, held("x")).await?;
    steps_are(&trial, &parent, std::slice::from_ref(&first)).await?;
    trial.remove(&parent, version).await?;
    steps_are(&trial, &parent, &[first]).await?;
    steps_are(&trial, &nested.parent().expect("a step"), &[nested]).await
}

pub(super) async fn pages_cover_each_once(trial: Trial) -> Checked {
    let parent = id_of("scope", "operation", "key");
    let steps: Result<Vec<Id>, _> = (0..40).map(|number| parent.step(&format!("step-{number}"))).collect();
    let steps = steps?;
    let other = id_of("scope", "operation", "other");
    let mut all = vec![creation(&parent, held("x")), creation(&other, held("x"))];
    for (number, step) in steps.iter().enumerate() {
        let state = State::ALL[number % State::ALL.len()];
        all.push(creation(step, record(state, (number % 3 != 0).then_some(FAR), "x")));
        all.push(creation(&other.step(&format!("step-{number}"))?, held("x")));
        all.push(creation(&step.step("nested")?, held("x")));
    }
    trial.swap(&sorted(all)).await?;
    for limit in [1, 7, 40, 1000] {
        let found = trial.pages(ScanTarget::StepsOf(parent.clone()), limit, 400).await?;
        once_each(&found, &steps).map_err(|wrong| Wrong(format!("limit {limit}: {wrong}")))?;
    }
    Ok(())
}

/// As a sweep does it: read a page, remove what it names, go on behind it.
pub(super) async fn follow_every_write(trial: Trial) -> Checked {
    let parent = id_of("scope", "operation", "key");
    let steps: Result<Vec<Id>, _> = (0..20).map(|number| parent.step(&format!("step-{number}"))).collect();
    let steps = steps?;
    trial.swap(&sorted(steps.iter().map(|step| creation(step, held("old"))).collect())).await?;
    let mut query = Scan::new(ScanTarget::StepsOf(parent.clone()), 3);
    let mut seen = Vec::new();
    for _ in 0..60 {
        let page = trial.page(&query).await?;
        for (id, found) in &page.found {
            trial.remove(id, found.version).await?;
        }
        seen.extend(page.found);
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    once_each(&seen, &steps)?;
    steps_are(&trial, &parent, &[]).await?;
    let version = trial.create(&steps[3], held("again")).await?;
    steps_are(&trial, &parent, &steps[3..4]).await?;
    let written = record(State::Done, None, "done");
    let version = trial.put(&steps[3], Seen::Version(version), written.clone()).await?;
    let found = trial.pages(ScanTarget::StepsOf(parent), 10, 10).await?;
    once_each(&found, &steps[3..4])?;
    super::trial::same(&found[0].0, &found[0].1, version, &written)?;
    ensure!(found[0].1.due == onceward::Due::Never, "never due, found {:?}", found[0].1.due);
    Ok(())
}

async fn steps_are(trial: &Trial, parent: &Id, expected: &[Id]) -> Checked {
    let found = trial.pages(ScanTarget::StepsOf(parent.clone()), 5, 60).await?;
    once_each(&found, expected).map_err(|wrong| Wrong(format!("steps of {parent:?}: {wrong}")))
}
