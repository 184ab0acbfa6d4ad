//! Steps: recovery points inside an intent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::{
    Answer, Lease, OnUnknown, Onceward, Outcome, Policy, Result, Retention, State, Stopped, Sweep,
};

use crate::cluster::{Cluster, ask, id, run_ready_tasks, secs};

fn policy() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(10)).build().unwrap()
}

#[derive(Clone, Default)]
struct Effects {
    charges: Arc<AtomicUsize>,
    mails: Arc<AtomicUsize>,
}

/// An operation of two steps that may die between them.
async fn order(onceward: &Onceward, effects: &Effects, dies_after_charge: bool) -> Result<Answer> {
    let effects = effects.clone();
    onceward
        .run(ask("order", &policy()), async move |lease| {
            let charge = lease.step("charge", async |_| {
                effects.charges.fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::succeeded("charge-1"))
            });
            let charge = charge.await?.into_result()?;
            if dies_after_charge {
                std::future::pending::<()>().await;
            }
            let mail = lease.step("mail", async |_| {
                effects.mails.fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::succeeded(""))
            });
            mail.await?.into_result()?;
            Ok(Outcome::succeeded(charge.outcome.body().clone()))
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn a_resumed_operation_skips_what_is_done_and_gets_its_result() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    let (doomed, kill) = cluster.killable_process();
    let run = tokio::spawn({
        let effects = effects.clone();
        async move { order(&doomed, &effects, true).await }
    });
    run_ready_tasks().await;
    kill.now();
    run.abort();
    let onceward = cluster.process();
    let completed = order(&onceward, &effects, false).await.unwrap().into_result().unwrap();
    assert_eq!(completed.outcome, Outcome::succeeded("charge-1"));
    assert_eq!(effects.charges.load(Ordering::SeqCst), 1);
    assert_eq!(effects.mails.load(Ordering::SeqCst), 1);
    let step = onceward.receipt(&id("order").step("charge").unwrap()).await.unwrap().unwrap();
    assert_eq!(step.status.state(), State::Done);
}

/// A key that is used again after its retention is a new intent: it must not be given the steps of the old one, which
/// no sweep may have removed yet; and while the old one is honoured, its steps are.
#[tokio::test(start_paused = true)]
async fn an_intent_that_begins_again_after_its_retention_finds_no_old_steps() {
    for enqueues in [false, true] {
        let cluster = Cluster::new();
        let (onceward, effects) = (cluster.process(), Effects::default());
        for life in 1..=3 {
            if enqueues {
                let asked = ask("order", &policy()).with_input("12");
                assert_eq!(onceward.enqueue(asked).await.unwrap(), onceward::Enqueued::Accepted);
            }
            for _ in 0..2 {
                order(&onceward, &effects, false).await.unwrap().into_result().unwrap();
                assert_eq!(effects.charges.load(Ordering::SeqCst), life, "enqueues: {enqueues}");
                assert_eq!(effects.mails.load(Ordering::SeqCst), life);
            }
            tokio::time::advance(secs(3_600 * 24 + 1)).await;
        }
    }
}

/// Two callers find the same expired receipt, and one has already run a step when the other removes the old ones.
#[tokio::test(start_paused = true)]
async fn the_steps_of_the_new_run_are_kept_from_a_slow_caller() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    order(&cluster.process(), &effects, false).await.unwrap();
    tokio::time::advance(secs(3_600 * 24 + 1)).await;
    let runs = (0..4).map(|_| {
        let (onceward, effects) = (cluster.process(), effects.clone());
        tokio::spawn(async move { order(&onceward, &effects, false).await.unwrap().into_result() })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap().unwrap();
    }
    assert_eq!(effects.charges.load(Ordering::SeqCst), 2);
    assert_eq!(effects.mails.load(Ordering::SeqCst), 2);
}

/// A sweep that removes an intent leaves none of its steps to the next intent with the same key, in whatever slices it
/// looks at them.
#[tokio::test(start_paused = true)]
async fn an_intent_that_begins_after_a_sweep_finds_no_old_steps() {
    for records in [1, 2, 3, 256] {
        let cluster = Cluster::new();
        let (onceward, effects) = (cluster.process(), Effects::default());
        order(&onceward, &effects, false).await.unwrap().into_result().unwrap();
        tokio::time::advance(secs(3_600 * 24 + 1)).await;
        let mut swept = 0;
        while onceward.receipt(&id("order")).await.unwrap().is_some() {
            let one_slice = Sweep::default().with_slice_records(records).with_slices_max(1);
            swept += onceward.sweep(&one_slice).await.unwrap().removed;
        }
        // In slices of fewer records, a step that is due at the same moment may come after its intent.
        assert!(swept == 3 || records < 256, "the intent goes last");
        order(&onceward, &effects, false).await.unwrap().into_result().unwrap();
        assert_eq!(effects.charges.load(Ordering::SeqCst), 2, "slices of {records}");
        assert_eq!(effects.mails.load(Ordering::SeqCst), 2, "slices of {records}");
    }
}

/// A step that is kept longer than its intent is skipped by the next intent with the same key, until its own retention
/// ends; from then on it counts no more, whether a sweep has removed it or not.
#[tokio::test(start_paused = true)]
async fn a_step_that_outlived_its_intent_counts_until_its_own_retention_ends() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let days = |days: u64| secs(3_600 * 24 * days);
    let long = policy().to_builder().with_retention(Retention::For(days(3))).build().unwrap();
    let effects = Arc::new(AtomicUsize::new(0));
    let run = async |seen_before: bool| {
        let work = async |lease: Lease| {
            assert_eq!(lease.recorded("charge").await?.is_some(), seen_before);
            let charge = async |_| {
                effects.fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::succeeded("charged"))
            };
            lease.step_under(long.clone(), "charge", charge).await?.into_result()?;
            Ok(Outcome::succeeded(""))
        };
        assert!(!onceward.run(ask("order", &policy()), work).await.unwrap().into_result().unwrap().replayed);
        effects.load(Ordering::SeqCst)
    };
    assert_eq!(run(false).await, 1);
    tokio::time::advance(days(1) + secs(1)).await;
    assert_eq!(onceward.sweep(&Sweep::default()).await.unwrap().removed, 1);
    assert_eq!(run(true).await, 1);
    tokio::time::advance(days(1) + secs(1)).await;
    assert_eq!(onceward.sweep(&Sweep::default()).await.unwrap().removed, 1);
    tokio::time::advance(days(1)).await;
    assert_eq!(run(false).await, 2, "of a life before this one");
}

/// A sweep that looked for an intent before it was asked for again removes a step of its previous life. The new run must not
/// have counted on it.
#[tokio::test(start_paused = true)]
async fn a_sweep_beside_a_new_run_removes_nothing_that_it_counts_on() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let effects = Arc::new(AtomicUsize::new(0));
    let long = policy().to_builder().with_retention(Retention::For(secs(3_600 * 30))).build().unwrap();
    let step = async |lease: Lease| {
        let charge = async |_| {
            effects.fetch_add(1, Ordering::SeqCst);
            Ok(Outcome::succeeded("charged"))
        };
        Ok::<_, Stopped>(lease.step_under(long.clone(), "charge", charge).await?.into_result()?)
    };
    onceward.run(ask("order", &policy()), async |lease| Ok(step(lease).await?.outcome)).await.unwrap();
    tokio::time::advance(secs(3_600 * 24 + 1)).await;
    assert_eq!(onceward.sweep(&Sweep::default()).await.unwrap().removed, 1);
    tokio::time::advance(secs(3_600 * 6)).await;
    // The sweep has read the step and that there is no intent, and its write is on the way.
    cluster.store.close_gate();
    let sweeping = tokio::spawn({
        let onceward = cluster.process();
        async move { onceward.sweep(&Sweep::default()).await }
    });
    run_ready_tasks().await;
    // First its write arrives, then those of the run: or the other way round.
    let first = onceward.run(ask("order", &policy()), async |lease| {
        step(lease).await?;
        Err::<Outcome, _>(Stopped::before_effect("the rest is done later"))
    });
    let (first, ()) = tokio::join!(first, async {
        run_ready_tasks().await;
        cluster.store.open_gate();
    });
    first.unwrap_err();
    sweeping.await.unwrap().unwrap();
    let again = onceward.run(ask("order", &policy()), async |lease| {
        assert!(step(lease).await?.replayed, "the step of this life is done");
        Ok(Outcome::succeeded(""))
    });
    again.await.unwrap().into_result().unwrap();
    assert_eq!(effects.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_fails_and_is_tried_again_keeps_its_finished_steps() {
    let onceward = Cluster::new().process();
    let charges = Arc::new(AtomicUsize::new(0));
    for fails in [true, false] {
        let charges = charges.clone();
        let answer = onceward
            .run(ask("order", &policy()), async move |lease| {
                lease
                    .step("charge", async |_| {
                        charges.fetch_add(1, Ordering::SeqCst);
                        Ok(Outcome::succeeded("charged"))
                    })
                    .await?
                    .into_result()?;
                if fails { Err(Stopped::unknown("mail server")) } else { Ok(Outcome::succeeded("all done")) }
            })
            .await;
        assert_eq!(answer.is_err(), fails);
    }
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

/// The outcome of the step is unknown and it must not be repeated, so that of the whole operation is unknown, no
/// matter that the operation itself may be retried.
#[tokio::test(start_paused = true)]
async fn a_held_step_with_an_unknown_outcome_stops_every_later_run() {
    let onceward = Cluster::new().process();
    let held = Arc::new(Policy::http());
    let charges = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (held, charges) = (held.clone(), charges.clone());
        let answer = onceward
            .run(ask("order", &policy()), async move |lease| {
                let charge = lease.step_under(held, "charge", async |_| {
                    charges.fetch_add(1, Ordering::SeqCst);
                    Err(Stopped::unknown("the provider did not answer"))
                });
                charge.await?.into_result()?;
                Ok(Outcome::succeeded("unreachable"))
            })
            .await;
        answer.unwrap_err();
    }
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn child_keys_are_the_same_on_every_try_and_differ_by_label() {
    let onceward = Cluster::new().process();
    let keys = Arc::new(std::sync::Mutex::new(Vec::new()));
    for _ in 0..2 {
        let keys = keys.clone();
        onceward
            .run(ask("k", &policy()), async move |lease| {
                keys.lock().unwrap().push((lease.child("charge")?, lease.child("mail")?));
                Err(Stopped::before_effect("again"))
            })
            .await
            .unwrap_err();
    }
    let keys = keys.lock().unwrap();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0].0, keys[0].1);
}
