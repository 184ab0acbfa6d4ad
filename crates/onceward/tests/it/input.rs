//! Inputs that their owner replaces, and intents that are resumed exactly as they were found.

use std::sync::Arc;

use onceward::{
    Applied, ErrorKind, Limits, OnDuplicate, OnUnknown, Onceward, Outcome, Policy, Refusal, State, Stopped,
    Worked,
};

use crate::cluster::{Cluster, Fault, ask, ask_for, id, never, paid, run_ready_tasks, secs};

fn retry() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(10)).build().unwrap()
}

async fn input_of(onceward: &Onceward, key: &str) -> String {
    let receipt = onceward.receipt(&id(key)).await.unwrap().unwrap();
    String::from_utf8(receipt.status.job().unwrap().input.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_replaced_input_is_durable_at_once_and_survives_renewals_and_the_end_of_the_run() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let stopped = here.run(ask("k", &retry()).with_input("one"), async |lease| {
        lease.replace_input("two").await?;
        assert_eq!(input_of(&elsewhere, "k").await, "two");
        assert_eq!(lease.input().unwrap(), "one", "this run goes on with what it began with");
        tokio::time::sleep(secs(35)).await;
        assert_eq!(input_of(&elsewhere, "k").await, "two", "renewals carry it along");
        Err(Stopped::suspend(secs(0)))
    });
    assert_eq!(stopped.await.unwrap_err().kind(), ErrorKind::Stopped);
    assert!(here.counts().renewals > 3, "{:?}", here.counts());
    let completed = elsewhere.run(ask("k", &retry()).with_input("three"), async |lease| {
        assert_eq!((lease.input().unwrap(), lease.tries()), (&"two".into(), 1));
        Ok(Outcome::succeeded("paid"))
    });
    assert!(!completed.await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_input_is_there_after_a_crash() {
    let cluster = Cluster::new();
    let ((dying, kill), later) = (cluster.killable_process(), cluster.process());
    let run = tokio::spawn(async move {
        let work = async |lease: onceward::Lease| {
            lease.replace_input("two").await?;
            kill.now();
            std::future::pending().await
        };
        dying.run(ask("k", &retry()).with_input("one"), work).await
    });
    tokio::time::sleep(secs(11)).await;
    run.abort();
    let found = later.receipt(&id("k")).await.unwrap().unwrap();
    let work = async |lease: onceward::Lease| {
        assert_eq!(lease.input().unwrap(), "two");
        Ok(Outcome::succeeded("paid"))
    };
    let resumed = later.resume(&id("k"), &found, Arc::new(retry()), work).await.unwrap();
    assert_eq!(resumed, Worked::Finished);
}

#[tokio::test(start_paused = true)]
async fn an_input_is_not_replaced_where_there_is_none_or_it_is_too_large() {
    let cluster = Cluster::new();
    let limits = Limits::default().with_input_bytes_max(8);
    let onceward = Onceward::builder(cluster.store.behind_the_gate())
        .accept_volatile()
        .with_limits(limits)
        .build()
        .unwrap();
    let replace = async |lease: onceward::Lease, input: &'static str| {
        let error = lease.replace_input(input).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        Ok(Outcome::succeeded("paid"))
    };
    onceward.run(ask("none", &retry()), |lease| replace(lease, "two")).await.unwrap();
    onceward
        .run(ask("large", &retry()).with_input("one"), |lease| replace(lease, "123456789"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_since_it_was_found_is_not_resumed() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    here.enqueue(ask("k", &retry()).with_input("one")).await.unwrap();
    let found = here.receipt(&id("k")).await.unwrap().unwrap();
    let suspend = async |_| Err(Stopped::suspend(secs(0)));
    let resumed = elsewhere.resume(&id("k"), &found, Arc::new(retry()), suspend).await.unwrap();
    assert_eq!(resumed, Worked::Suspended);
    let resumed = here.resume(&id("k"), &found, Arc::new(retry()), never).await.unwrap();
    assert_eq!(resumed, Worked::TakenElsewhere, "it waits again, but it is not the receipt that was found");
    let found = here.receipt(&id("k")).await.unwrap().unwrap();
    let resumed = here.resume(&id("k"), &found, Arc::new(retry()), paid).await.unwrap();
    assert_eq!(resumed, Worked::Finished);
}

/// The claim of a caller that went away is free for others, but not for another request where it carries what
/// somebody asked.
#[tokio::test(start_paused = true)]
async fn a_claim_that_must_be_released_is_free_for_another_request_only_if_it_carries_nothing() {
    for carries in [true, false] {
        let cluster = Cluster::new();
        let onceward = cluster.process();
        let first = if carries { ask("k", &retry()).with_input("one") } else { ask("k", &retry()) };
        // It is in the store, its owner does not know, and cannot find out for a while.
        cluster.store.script([Fault::LoseReply]);
        cluster.store.fail_loads(4);
        assert_eq!(onceward.run(first, never).await.unwrap_err().applied(), Applied::Maybe);
        let held = cluster.store.behind_the_gate().load(&[id("k")]).await.unwrap().remove(0).unwrap();
        assert_eq!(held.unwrap().state, State::Held);
        let answer =
            onceward.run(ask_for("k", "something else", &retry()).with_input("two"), paid).await.unwrap();
        if carries {
            assert_eq!(answer.into_result().unwrap_err(), Refusal::KeyReused);
            // After the release, it waits for an ask with the same fingerprint.
            tokio::time::sleep(secs(1)).await;
            assert_eq!(onceward.receipt(&id("k")).await.unwrap().unwrap().status.state(), State::Waiting);
        } else {
            assert!(!answer.into_result().unwrap().replayed);
        }
    }
}

/// A caller that drops the last handle of its engine leaves no claim that others wait for.
#[tokio::test(start_paused = true)]
async fn a_claim_in_flight_is_released_when_the_engine_is_dropped_with_its_caller() {
    for carries in [true, false] {
        let cluster = Cluster::new();
        let policy = retry().to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
        let first = if carries { ask("k", &policy).with_input("one") } else { ask("k", &policy) };
        let here = cluster.process();
        cluster.store.close_gate();
        let run = tokio::spawn(async move { here.run(first, never).await });
        run_ready_tasks().await;
        assert_eq!(cluster.store.batches(), [1], "the claim is on its way");
        run.abort();
        run_ready_tasks().await;
        cluster.store.open_gate();
        run_ready_tasks().await;
        assert!(cluster.store.batches().len() > 1, "it arrived, and was released");
        let completed = cluster
            .process()
            .run(ask("k", &policy).with_input("one"), paid)
            .await
            .unwrap()
            .into_result()
            .unwrap();
        assert!(!completed.replayed);
    }
}
