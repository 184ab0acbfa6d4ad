//! How work can end, and what that means for the key.

use onceward::receipt::{Status, UnknownReason};
use onceward::{
    Answer, Changed, ErrorKind, OnFailure, OnUnknown, Outcome, Policy, Prior, Recorded, Refusal, Settlement,
    Stopped,
};

use crate::cluster::{Cluster, ask, id, never, paid, run_ready_tasks, secs};

fn retry() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap()
}

async fn status(onceward: &onceward::Onceward, key: &str) -> Option<Status> {
    onceward.receipt(&id(key)).await.unwrap().map(|receipt| receipt.status)
}

async fn reason(onceward: &onceward::Onceward, key: &str) -> UnknownReason {
    match status(onceward, key).await {
        Some(Status::Unknown(unknown)) => unknown.reason,
        other => panic!("not unknown: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_the_answer_or_frees_the_key_by_policy() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let decline = async |_| Ok(Outcome::failed("declined"));
    let first = onceward.run(ask("burned", &Policy::http()), decline).await.unwrap().into_result().unwrap();
    assert_eq!(first.recorded, Recorded::Yes);
    let again = onceward.run(ask("burned", &Policy::http()), never).await.unwrap().into_result().unwrap();
    assert_eq!((again.outcome, again.replayed), (Outcome::failed("declined"), true));

    let policy = Policy::http().to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    let first = onceward.run(ask("free", &policy), decline).await.unwrap().into_result().unwrap();
    assert_eq!((first.recorded, first.expires_in), (Recorded::Released, None));
    let again = onceward.run(ask("free", &policy), paid).await.unwrap().into_result().unwrap();
    assert!(!again.replayed && again.fence > first.fence);
}

#[tokio::test(start_paused = true)]
async fn work_that_stops_before_its_effect_frees_the_key() {
    let onceward = Cluster::new().process();
    let stop = async |_| Err(Stopped::before_effect("no connection"));
    let error = onceward.run(ask("k", &Policy::http()), stop).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Stopped, onceward::Applied::No));
    assert!(error.to_string().contains("no connection"), "{error}");
    assert!(!onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn an_error_leaves_the_outcome_unknown() {
    let onceward = Cluster::new().process();
    let fail = async |_| Err(std::io::Error::other("reset by peer"))?;
    let error = onceward.run(ask("held", &Policy::http()), fail).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Stopped, onceward::Applied::Maybe));
    assert_eq!(reason(&onceward, "held").await, UnknownReason::Reported);
    let refused = onceward.run(ask("held", &Policy::http()), never).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown));

    onceward.run(ask("free", &retry()), fail).await.unwrap_err();
    assert!(!onceward.run(ask("free", &retry()), paid).await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_panic_reaches_the_caller_and_leaves_the_outcome_unknown() {
    let onceward = Cluster::new().process();
    for (key, policy, held) in [("held", Policy::http(), true), ("free", retry(), false)] {
        let panicked = tokio::spawn({
            let (onceward, ask) = (onceward.clone(), ask(key, &policy));
            async move {
                let work = async |_| {
                    tokio::time::sleep(secs(1)).await;
                    panic!("a bug in the work")
                };
                onceward.run(ask, work).await
            }
        });
        let panic = panicked.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"a bug in the work"));
        if held {
            assert_eq!(reason(&onceward, key).await, UnknownReason::Panicked);
        } else {
            // Free to run again, and the next run is told that this one may have had its effect.
            let Some(Status::Waiting(waiting)) = status(&onceward, key).await else { panic!("not waiting") };
            assert_eq!(waiting.prior, Prior::Unknown);
            let seen = async |lease: onceward::Lease| {
                assert_eq!(lease.prior(), Prior::Unknown);
                Ok(Outcome::succeeded("again"))
            };
            assert!(!onceward.run(ask(key, &policy), seen).await.unwrap().into_result().unwrap().replayed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_before_the_work_began_the_claim_is_released() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.close_gate();
    let mut run = Box::pin(onceward.run(ask("k", &Policy::http()), never));
    assert!(futures_poll(&mut run).await.is_none());
    drop(run);
    cluster.store.open_gate();
    run_ready_tasks().await;
    assert_eq!(status(&onceward, "k").await, None);
    assert!(!onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn dropped_while_working_the_outcome_is_unknown() {
    let onceward = Cluster::new().process();
    for (key, policy, held) in [("held", Policy::http(), true), ("free", retry(), false)] {
        let mut run = Box::pin(onceward.run(ask(key, &policy), async |_| std::future::pending().await));
        assert!(futures_poll(&mut run).await.is_none());
        drop(run);
        run_ready_tasks().await;
        if held {
            assert_eq!(reason(&onceward, key).await, UnknownReason::Dropped);
        } else {
            // Free to run again, and the next run is told that this one may have had its effect.
            let Some(Status::Waiting(waiting)) = status(&onceward, key).await else { panic!("not waiting") };
            assert_eq!(waiting.prior, Prior::Unknown);
            let seen = async |lease: onceward::Lease| {
                assert_eq!(lease.prior(), Prior::Unknown);
                Ok(Outcome::succeeded("again"))
            };
            assert!(!onceward.run(ask(key, &policy), seen).await.unwrap().into_result().unwrap().replayed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_while_recording_the_outcome_is_recorded_all_the_same() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let store = cluster.store.clone();
    let work = async move |_| {
        store.close_gate();
        Ok(Outcome::succeeded("paid"))
    };
    let mut run = Box::pin(onceward.run(ask("k", &Policy::http()), work));
    assert!(futures_poll(&mut run).await.is_none());
    drop(run);
    cluster.store.open_gate();
    run_ready_tasks().await;
    assert!(onceward.run(ask("k", &Policy::http()), never).await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled_either_way_and_only_for_the_run_that_was_examined() {
    let onceward = Cluster::new().process();
    let policy = Policy::http();
    let fail = async |_| Err(Stopped::unknown("timed out"));
    for key in ["happened", "did-not"] {
        onceward.run(ask(key, &policy), fail).await.unwrap_err();
    }
    let fence = |key: &'static str| {
        let onceward = onceward.clone();
        async move { status(&onceward, key).await.unwrap().fence() }
    };
    let done = Settlement::Done(Outcome::succeeded("it was paid"));
    let other = onceward::Fence(fence("happened").await.0 - 1);
    let refused = onceward.settle(&id("happened"), other, &done, &policy).await.unwrap();
    assert!(matches!(refused, Changed::NotOwner(Some(_))));
    assert_eq!(
        onceward.settle(&id("happened"), fence("happened").await, &done, &policy).await.unwrap(),
        Changed::Applied
    );
    let completed = onceward.run(ask("happened", &policy), never).await.unwrap().into_result().unwrap();
    assert_eq!(completed.outcome, Outcome::succeeded("it was paid"));

    let old = fence("did-not").await;
    assert_eq!(
        onceward.settle(&id("did-not"), old, &Settlement::NotDone, &policy).await.unwrap(),
        Changed::Applied
    );
    let completed = onceward.run(ask("did-not", &policy), paid).await.unwrap().into_result().unwrap();
    assert!(!completed.replayed && completed.fence > old);
    assert_eq!(
        onceward.settle(&id("nobody"), old, &Settlement::NotDone, &policy).await.unwrap(),
        Changed::NotOwner(None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_still_has_its_lease_cannot_be_settled() {
    let onceward = Cluster::new().process();
    let mut run = Box::pin(onceward.run(ask("k", &Policy::http()), async |_| std::future::pending().await));
    assert!(futures_poll(&mut run).await.is_none());
    let fence = status(&onceward, "k").await.unwrap().fence();
    let error = onceward.settle(&id("k"), fence, &Settlement::NotDone, &Policy::http()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

/// Polls once and lets everything else settle; the value if it is ready.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut polled = None;
    std::future::poll_fn(|cx| {
        if let std::task::Poll::Ready(output) = std::pin::Pin::new(&mut *future).poll(cx) {
            polled = Some(output);
        }
        std::task::Poll::Ready(())
    })
    .await;
    run_ready_tasks().await;
    polled
}
