//! Sagas that are started and driven in one place: as far as they go, then by workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::{Enqueued, Refusal, State};
use onceward_flows::{Driven, Ended, Saga, SagaState, Step, StepResult, StepStop};
use tokio::sync::Notify;

use crate::saga::{Log, STUCK_AFTER, ok, order, quick, work};

#[tokio::test]
async fn a_saga_that_is_run_ends_without_a_worker() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = order(&log, |step| {
        assert_eq!(step.input(), "input");
        Ok("shipped".into())
    });
    let saga = saga.build().unwrap();
    let shipped = Driven::Ended(Ended::Succeeded("shipped".into()));
    assert_eq!(saga.run(&onceward, "81", "input").await.unwrap(), shipped);
    assert_eq!(saga.run(&onceward, "81", "input").await.unwrap(), shipped, "the same saga");
    assert_eq!(log.all(), ["reserve", "charge", "ship"]);
    let other = saga.run(&onceward, "81", "another input").await.unwrap();
    assert_eq!(other, Driven::Refused(Refusal::KeyReused));
    assert_eq!(
        saga.start(&onceward, "81", "input").await.unwrap(),
        Enqueued::AlreadyThere(State::Done),
        "as if it had been started for workers"
    );
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    assert_eq!((view.state, view.input.as_ref()), (SagaState::Completed, &b"input"[..]));
}

#[tokio::test]
async fn a_refused_step_undoes_a_saga_that_is_run() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = order(&log, |_| Err(StepStop::refused("sold out"))).build().unwrap();
    let undone = Driven::Ended(Ended::Undone("ship: sold out".into()));
    assert_eq!(saga.run(&onceward, "81", "").await.unwrap(), undone);
    assert_eq!(log.all(), ["reserve", "charge", "ship", "undo charge", "undo reserve"]);
}

/// What waits is for workers: its receipt has the input, and no step runs twice.
#[tokio::test]
async fn a_saga_that_waits_goes_on_with_a_worker() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let noted = log.clone();
    let flaky = move |step: Step| {
        noted.add("flaky");
        std::future::ready(if step.tries() < 2 { Err(StepStop::retry("later")) } else { Ok("") })
    };
    let saga = Saga::builder("order")
        .step("reserve", log.step(ok))
        .no_undo()
        .step("flaky", flaky)
        .with_tries(3, quick())
        .build()
        .unwrap();
    assert_eq!(saga.run(&onceward, "81", "input").await.unwrap(), Driven::Continues);
    let view = work(&onceward, &saga, "81").await;
    assert_eq!((view.state, view.input.as_ref()), (SagaState::Completed, &b"input"[..]));
    assert_eq!(log.all(), ["reserve", "flaky", "flaky"]);
}

/// The caller goes away during a step. The step ends in a task of its own, and a worker goes on behind it.
#[tokio::test]
async fn a_saga_whose_caller_is_dropped_goes_on_with_a_worker() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let (begun, gate, first) =
        (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicBool::new(true)));
    let (noted, has_begun, opened) = (log.clone(), begun.clone(), gate.clone());
    let reserve = move |_: Step| {
        let (noted, has_begun, opened) = (noted.clone(), has_begun.clone(), opened.clone());
        let is_first = first.swap(false, Ordering::SeqCst);
        async move {
            assert!(is_first, "it ran twice");
            has_begun.notify_one();
            opened.notified().await;
            noted.add("reserve");
            StepResult::Ok("seat 12")
        }
    };
    let saga = Saga::builder("order")
        .step("reserve", reserve)
        .no_undo()
        .step("ship", log.step(ok))
        .with_lease(Duration::from_millis(300))
        .build()
        .unwrap();
    tokio::select! {
        driven = saga.run(&onceward, "81", "") => unreachable!("{driven:?}"),
        () = begun.notified() => {}
    }
    gate.notify_one();
    let view = tokio::time::timeout(STUCK_AFTER, work(&onceward, &saga, "81")).await.unwrap();
    assert_eq!(view.state, SagaState::Completed);
    assert_eq!(log.all(), ["reserve", "ship"]);
}

/// Two callers at once: one drives it, and no step runs twice.
#[tokio::test]
async fn a_saga_that_is_run_twice_at_once_runs_once() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = order(&log, ok).build().unwrap();
    let (one, other) = tokio::join!(saga.run(&onceward, "81", ""), saga.run(&onceward, "81", ""));
    let ended = Driven::Ended(Ended::Succeeded("ship done".into()));
    let both = [one.unwrap(), other.unwrap()];
    assert!(both.contains(&ended), "{both:?}");
    assert!(both.iter().all(|driven| *driven == ended || *driven == Driven::Continues), "{both:?}");
    assert_eq!(log.all(), ["reserve", "charge", "ship"]);
}

/// A saga that was started by another version is left to workers that have it.
#[tokio::test]
async fn a_saga_of_another_version_is_not_driven_with_this_code() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let first = order(&log, ok).build().unwrap();
    let second = Saga::builder("order").step("other", log.step(ok)).with_version(2).build().unwrap();
    first.start(&onceward, "81", "").await.unwrap();
    assert_eq!(second.run(&onceward, "81", "").await.unwrap(), Driven::Continues);
    assert!(log.all().is_empty());
}
