//! Undos that have to wait: for an action that still runs, and for each other where they run at once.

use std::sync::Arc;
use std::time::Duration;

use onceward::Worked;
use onceward_flows::{
    Ended, Saga, SagaChange, SagaState, Step, StepResult, StepStop, StoredSagas, UndoOrder,
};
use tokio::sync::{Barrier, Notify};

use crate::saga::{Log, STUCK_AFTER, ok, work};

/// Undos of several steps run at once where that is declared: each of these waits for the other one to begin.
#[tokio::test]
async fn parallel_undos_run_at_once() {
    let (onceward, both) = (onceward_stores::in_memory(), Arc::new(Barrier::new(2)));
    let log = Log::default();
    let undo = || {
        let (both, log) = (both.clone(), log.clone());
        move |step: Step| {
            let (both, log) = (both.clone(), log.clone());
            async move {
                both.wait().await;
                log.add(format!("undo {}", step.name()));
                StepResult::Ok(())
            }
        }
    };
    let saga = Saga::builder("order")
        .step("reserve", log.step(ok))
        .undo(undo())
        .step("charge", log.step(ok))
        .undo(undo())
        .step("ship", log.step(|_| Err(StepStop::refused("no"))))
        .with_undo_order(UndoOrder::Parallel)
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = tokio::time::timeout(STUCK_AFTER, work(&onceward, &saga, "81")).await.unwrap();
    assert_eq!(view.ended, Some(Ended::Undone("ship: no".into())));
    assert_eq!((log.count("undo reserve"), log.count("undo charge")), (1, 1));
}

/// A person wants a saga undone while an action of it runs, and the worker that began it is gone: the next driver of the
/// saga waits for that action, and undoes nothing before it has ended.
#[tokio::test]
async fn an_undo_waits_for_an_action_that_still_runs() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (noted, has_begun, opened) = (log.clone(), begun.clone(), gate.clone());
    let charge = move |_: Step| {
        let (noted, has_begun, opened) = (noted.clone(), has_begun.clone(), opened.clone());
        async move {
            noted.add("charge begins");
            has_begun.notify_one();
            opened.notified().await;
            noted.add("charge ends");
            StepResult::Ok("ch_1")
        }
    };
    let saga = Saga::builder("order")
        .step("reserve", log.step(ok))
        .undo(log.step(ok))
        .step("charge", charge)
        .undo(log.step(ok))
        .step("ship", log.step(ok))
        // It is renewed while the action runs, and is how long the saga waits before it looks again.
        .with_lease(Duration::from_secs(2))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let (id, worker) = (saga.id("81").unwrap(), saga.worker(&onceward).unwrap());
    // The action goes on in a task of its own when its worker is dropped.
    tokio::select! {
        end = worker.work_on(&id) => unreachable!("{end:?}"),
        () = begun.notified() => {}
    }
    assert_eq!(StoredSagas::new(&onceward).undo(&id, "a person").await.unwrap(), SagaChange::Applied);
    let drive = async {
        loop {
            match worker.work_on(&id).await.unwrap() {
                // The claim of the dropped worker is given up in a task of its own.
                Worked::TakenElsewhere | Worked::NothingToDo => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                end => return end,
            }
        }
    };
    let driven = tokio::time::timeout(STUCK_AFTER, drive).await.unwrap();
    assert_eq!(driven, Worked::Suspended, "it was driven, and waits");
    assert_eq!(log.all(), ["reserve", "charge begins"], "nothing is undone while an action runs");
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    assert_eq!(view.state, SagaState::Undoing, "{view:#?}");

    gate.notify_one();
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("a person".into())));
    let all = log.all();
    assert_eq!(
        all[2..],
        ["charge ends", "undo charge", "undo reserve"],
        "and once it has ended, it is undone too"
    );
}
