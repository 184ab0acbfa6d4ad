//! Stores that fail, with and without the write having happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::receipt::Status;
use onceward::{Applied, ErrorKind, OnUnknown, Outcome, Policy, PriorReceipt, Recorded, Sweep};

use crate::cluster::{Cluster, Fault, ask, id, never, paid, run_ready_tasks, secs};

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_recognises_itself() {
    for fault in [Fault::LoseReply, Fault::LoseWrite] {
        let cluster = Cluster::new();
        let onceward = cluster.process();
        cluster.store.script([fault]);
        let completed = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap();
        assert!(!completed.replayed, "{fault:?}");
        assert!(
            cluster
                .process()
                .run(ask("k", &Policy::http()), never)
                .await
                .unwrap()
                .into_result()
                .unwrap()
                .replayed
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_refused_is_an_error_and_runs_nothing() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.script([Fault::Refuse]);
    let error = onceward.run(ask("k", &Policy::http()), never).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No));
    assert!(!onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap().replayed);
}

/// A caller that runs unguarded while the store is down must not do so if a receipt has been seen.
#[tokio::test(start_paused = true)]
async fn a_failure_says_whether_a_receipt_had_been_seen() {
    let cluster = Cluster::new();
    let policy = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
    cluster.store.script([Fault::Refuse]);
    let error = cluster.process().run(ask("k", &policy), never).await.unwrap_err();
    assert_eq!((error.applied(), error.prior_receipt()), (Applied::No, PriorReceipt::NotSeen));

    let onceward::Claimed::Granted(_) = cluster.process().claim(ask("k", &policy)).await.unwrap() else {
        panic!("the key is free")
    };
    tokio::time::sleep(policy.lease()).await;
    // The lapsed claim is seen, and taking it over fails.
    cluster.store.script([Fault::Pass, Fault::Refuse]);
    let error = cluster.process().run(ask("k", &policy), never).await.unwrap_err();
    assert_eq!((error.applied(), error.prior_receipt()), (Applied::No, PriorReceipt::Seen));
}

/// The claim may be in the store although no work ran under it; it is released as soon as the store
/// answers again, so that the key is not blocked for a whole lease.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_released() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.script([Fault::LoseReply]);
    cluster.store.fail_loads(1);
    let error = onceward.run(ask("k", &Policy::http()), never).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe);
    run_ready_tasks().await;
    assert_eq!(onceward.receipt(&id("k")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_is_reported_to_all_who_wait_at_once() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.script([Fault::Refuse]);
    cluster.store.close_gate();
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let onceward = onceward.clone();
        asks.spawn(async move { onceward.run(ask("k", &Policy::http()), never).await });
    }
    run_ready_tasks().await;
    cluster.store.open_gate();
    let answers = asks.join_all().await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable)));
    assert_eq!(cluster.store.batches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_was_lost_is_found_to_have_happened() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.script([Fault::Pass, Fault::LoseReply]);
    let completed = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap();
    assert_eq!((completed.replayed, completed.recorded), (false, Recorded::NotYet));
    tokio::time::sleep(secs(1)).await;
    assert_eq!((onceward.counts().completions, onceward.counts().fenced_off), (1, 0));
    assert!(
        cluster
            .process()
            .run(ask("k", &Policy::http()), never)
            .await
            .unwrap()
            .into_result()
            .unwrap()
            .replayed
    );
}

#[tokio::test(start_paused = true)]
async fn writing_an_outcome_is_retried_while_the_lease_lasts() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let faults = [Fault::Refuse, Fault::LoseWrite, Fault::Refuse, Fault::LoseWrite, Fault::Refuse];
    cluster.store.script([Fault::Pass].into_iter().chain(faults));
    cluster.store.fail_loads(3);
    let completed = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap();
    assert_eq!(completed.recorded, Recorded::NotYet, "the caller is not kept waiting");
    let other = onceward.run(ask("k", &Policy::http()), never).await.unwrap().into_result().unwrap();
    assert!(other.replayed, "a duplicate here waits for it");
    assert!(
        cluster
            .process()
            .run(ask("k", &Policy::http()), never)
            .await
            .unwrap()
            .into_result()
            .unwrap()
            .replayed
    );
    assert_eq!((onceward.counts().completions_delayed, onceward.counts().completions), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn under_retry_an_outcome_is_given_up_when_the_lease_ends() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy =
        Policy::http().to_builder().with_lease(secs(5)).with_on_unknown(OnUnknown::Retry).build().unwrap();
    cluster.store.script([Fault::Pass].into_iter().chain([Fault::Refuse; 1_000]));
    let completed = onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
    assert_eq!(completed.recorded, Recorded::NotYet);
    tokio::time::sleep(secs(8)).await;
    assert_eq!(onceward.counts().completions_given_up, 1);
    cluster.store.heal();
    let again = onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
    assert!(!again.replayed && again.fence > completed.fence);
}

/// Nobody else may run it, so what was answered is on record in the end, however long the store is away.
#[tokio::test(start_paused = true)]
async fn under_hold_an_outcome_is_written_for_as_long_as_the_process_lives() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = Policy::http().to_builder().with_lease(secs(5)).build().unwrap();
    cluster.store.script([Fault::Pass].into_iter().chain(std::iter::repeat_n(Fault::Refuse, 100_000)));
    cluster.store.fail_loads(100_000);
    let completed = onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
    assert_eq!(completed.recorded, Recorded::NotYet);
    tokio::time::sleep(secs(3_600)).await;
    cluster.store.heal();
    // Another process finds the expired lease first, and marks the outcome as unknown.
    let refused = cluster.process().run(ask("k", &policy), never).await.unwrap();
    assert_eq!(refused, onceward::Answer::Refused(onceward::Refusal::OutcomeUnknown));
    tokio::time::sleep(secs(5)).await;
    let replayed = cluster.process().run(ask("k", &policy), never).await.unwrap().into_result().unwrap();
    assert_eq!((replayed.outcome, replayed.replayed), (completed.outcome, true));
    assert_eq!(onceward.counts().completions_given_up, 0);
}

/// An operator sees an expired lease; the process that is asked knows better.
#[tokio::test(start_paused = true)]
async fn a_process_that_knows_the_outcome_refuses_to_settle_it_otherwise() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = Policy::http().to_builder().with_lease(secs(5)).build().unwrap();
    cluster.store.script([Fault::Pass].into_iter().chain([Fault::Refuse; 20]));
    cluster.store.fail_loads(20);
    let completed = onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
    assert_eq!(completed.recorded, Recorded::NotYet);
    tokio::time::sleep(secs(6)).await;
    cluster.store.heal();
    let refused = cluster.process().run(ask("k", &policy), never).await.unwrap();
    assert_eq!(refused, onceward::Answer::Refused(onceward::Refusal::OutcomeUnknown));
    let id = ask("k", &policy).id().clone();
    let not_done = onceward::Settlement::NotDone;
    let error = onceward.settle(&id, completed.fence, &not_done, &policy).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // Nor does it forget what it knows.
    let found = cluster.process().receipt(&id).await.unwrap().unwrap();
    let error = onceward.forget_unknown(&id, &found).await.unwrap_err();
    assert!(error.to_string().contains("knows the outcome"), "{error}");
    tokio::time::sleep(secs(5)).await;
    let replayed = cluster.process().run(ask("k", &policy), never).await.unwrap().into_result().unwrap();
    assert_eq!((replayed.outcome, replayed.replayed), (completed.outcome, true));
}

/// The same where the unknown outcome was given up: an operator neither discards nor retries what this process knows.
#[tokio::test(start_paused = true)]
async fn a_process_that_knows_the_outcome_refuses_to_discard_or_retry_it() {
    let cluster = Cluster::new();
    let (onceward, other) = (cluster.process(), cluster.process());
    let policy = Policy::http().to_builder().with_lease(secs(5)).build().unwrap();
    cluster.store.script([Fault::Pass].into_iter().chain(std::iter::repeat_n(Fault::Refuse, 1_000)));
    cluster.store.fail_loads(1_000);
    let completed = onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
    assert_eq!(completed.recorded, Recorded::NotYet);
    tokio::time::sleep(secs(6)).await;
    cluster.store.heal();
    let refused = other.run(ask("k", &policy), never).await.unwrap();
    assert_eq!(refused, onceward::Answer::Refused(onceward::Refusal::OutcomeUnknown));
    let id = ask("k", &policy).id().clone();
    let swept = other.sweep(&Sweep::default().with_unknown_after(Duration::ZERO)).await.unwrap();
    assert_eq!(swept.given_up, 1);
    for decided in [onceward.discard_dead(&id, &policy).await, onceward.retry_dead(&id).await] {
        let error = decided.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().contains("knows the outcome")),
            (ErrorKind::Conflict, true)
        );
    }
    tokio::time::sleep(secs(60)).await;
    let replayed = other.run(ask("k", &policy), never).await.unwrap().into_result().unwrap();
    assert_eq!((replayed.outcome, replayed.replayed), (completed.outcome, true));
}

/// What waits for the store is bounded in bytes: beyond that bodies are left out, never outcomes.
#[tokio::test(start_paused = true)]
async fn outcomes_that_wait_for_the_store_are_bounded_in_bytes() {
    let cluster = Cluster::new();
    let limits = onceward::Limits::default().with_unrecorded_bytes_max(1_000);
    let store = cluster.store.clone();
    let onceward = onceward::Onceward::builder(store).with_limits(limits).accept_volatile().build().unwrap();
    for key in ["fits", "does-not"] {
        // No time passes between the two, so the claim is the one that gets through.
        cluster.store.heal();
        cluster.store.script([Fault::Pass].into_iter().chain([Fault::Refuse; 1_000]));
        cluster.store.fail_loads(1_000);
        let large = async |_| Ok(Outcome::succeeded(vec![b'x'; 600]));
        let completed = onceward.run(ask(key, &Policy::http()), large).await.unwrap().into_result().unwrap();
        assert_eq!(completed.recorded, Recorded::NotYet);
        assert_eq!(completed.outcome.body().len(), 600, "its own caller gets it");
    }
    cluster.store.heal();
    tokio::time::sleep(secs(60)).await;
    let other = cluster.process();
    assert!(other.run(ask("fits", &Policy::http()), never).await.unwrap().into_result().is_ok());
    let refused =
        other.run(ask("does-not", &Policy::http()), never).await.unwrap().into_result().unwrap_err();
    assert!(matches!(refused, onceward::Refusal::ResponseNotStored { .. }), "{refused:?}");
}

/// A claim whose answer was lost, and whose caller got an error: its work never began, so its outcome is never unknown
/// while the process lives. Whatever the store does meanwhile, the claim is released, and asks here find it free.
#[tokio::test(start_paused = true)]
async fn work_that_never_began_is_not_unknown() {
    for outage in [secs(1), secs(60), secs(3_600)] {
        for found_by_another in [false, true] {
            let cluster = Cluster::new();
            let onceward = cluster.process();
            let policy = Policy::http().to_builder().with_lease(secs(5)).build().unwrap();
            cluster
                .store
                .script([Fault::LoseReply].into_iter().chain(std::iter::repeat_n(Fault::Refuse, 10_000)));
            cluster.store.fail_loads(10_000);
            let error = onceward.run(ask("k", &policy), never).await.unwrap_err();
            assert_eq!(error.applied(), onceward::Applied::Maybe);
            tokio::time::sleep(outage).await;
            cluster.store.heal();
            if found_by_another && outage > secs(5) {
                let refused = cluster.process().run(ask("k", &policy), never).await.unwrap();
                assert_eq!(refused, onceward::Answer::Refused(onceward::Refusal::OutcomeUnknown));
            }
            let completed = onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
            assert!(!completed.replayed, "{outage:?}: free for asks of this process");

            // And for everybody else a moment later, also if nobody asks here.
            cluster
                .store
                .script([Fault::LoseReply].into_iter().chain(std::iter::repeat_n(Fault::Refuse, 10_000)));
            cluster.store.fail_loads(10_000);
            onceward.run(ask("other", &policy), never).await.unwrap_err();
            tokio::time::sleep(outage).await;
            cluster.store.heal();
            tokio::time::sleep(secs(5)).await;
            assert_eq!(onceward.receipt(&id("other")).await.unwrap(), None, "{outage:?}");
        }
    }
}

/// A lost claim that arrives late is looked for, and released when it has arrived.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_late_is_released() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = Policy::http().to_builder().with_lease(secs(5)).build().unwrap();
    cluster.store.close_gate();
    let mut run = Box::pin(onceward.run(ask("k", &policy), never));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(run.as_mut().poll(cx).is_pending())).await);
    drop(run);
    tokio::time::sleep(secs(60)).await;
    cluster.store.open_gate();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(onceward.receipt(&id("k")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_is_a_release() {
    for fault in [Fault::LoseReply, Fault::LoseWrite, Fault::Refuse] {
        let cluster = Cluster::new();
        let onceward = cluster.process();
        cluster.store.script([Fault::Pass, fault]);
        let stop = async |_| Err(onceward::Stopped::before_effect("no connection"));
        onceward.run(ask("k", &Policy::http()), stop).await.unwrap_err();
        let completed = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap();
        assert!(!completed.replayed, "{fault:?}");
        assert_eq!(onceward.counts().fenced_off, 0);
    }
}

/// Random faults on every call, many callers, one id after the other: each runs once, or its outcome is unknown.
#[tokio::test(start_paused = true)]
async fn no_mix_of_faults_runs_anything_twice_under_hold() {
    let cluster = Cluster::new();
    let processes = [cluster.process(), cluster.process()];
    let policy = Policy::http().to_builder().with_lease(secs(2)).build().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..300 {
        let runs = Arc::new(AtomicUsize::new(0));
        let key = format!("k{round}");
        let faults: Vec<_> = (0..6)
            .map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                [Fault::Pass, Fault::LoseReply, Fault::LoseWrite, Fault::Refuse][(random >> 60) as usize % 4]
            })
            .collect();
        cluster.store.script(faults.iter().copied());
        let mut asks = tokio::task::JoinSet::new();
        for at in 0..6 {
            let (process, runs, ask) = (processes[at % 2].clone(), runs.clone(), ask(&key, &policy));
            asks.spawn(async move {
                let work = async move |_| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok(Outcome::succeeded("paid"))
                };
                process.run(ask, work).await
            });
        }
        asks.join_all().await;
        cluster.store.heal();
        tokio::time::sleep(secs(5)).await;
        processes[0].run(ask(&key, &policy), paid).await.unwrap();
        let status = processes[1].receipt(&id(&key)).await.unwrap().unwrap().status;
        let runs = runs.load(Ordering::SeqCst);
        assert!(runs <= 1, "round {round} ran {runs} times under {faults:?}");
        assert!(matches!(status, Status::Done(_) | Status::Unknown(_)), "round {round}: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_receipt_is_an_error_that_names_it_and_runs_nothing() {
    use onceward::{Record, Seen, State, Store, Swap};
    let cluster = Cluster::new();
    let record = Record::new(State::Done, "not a receipt");
    cluster.store.swap(&[Swap { id: id("k"), seen: Seen::Absent, new: Some(record) }]).await.unwrap();
    let onceward = cluster.process();
    let policy = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
    let error = onceward.run(ask("k", &policy), never).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
}

/// A takeover is one, whether the answer to its claim arrives or is lost; and a claim that took nothing over is none.
#[tokio::test(start_paused = true)]
async fn a_takeover_whose_answer_was_lost_counts_once() {
    for fault in [Fault::Pass, Fault::LoseReply, Fault::LoseWrite] {
        let cluster = Cluster::new();
        let policy = Policy::http()
            .to_builder()
            .with_on_unknown(OnUnknown::Retry)
            .with_lease(secs(10))
            .build()
            .unwrap();
        drop(cluster.process().claim(ask("k", &policy)).await.unwrap());
        tokio::time::sleep(secs(11)).await;
        let onceward = cluster.process();
        // Its first look finds the lapsed claim, its second write takes it over.
        cluster.store.script([Fault::Pass, fault]);
        onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap();
        assert_eq!((onceward.counts().takeovers, onceward.counts().claims), (1, 1), "{fault:?}");
        cluster.store.script([fault]);
        onceward.run(ask("new", &policy), paid).await.unwrap().into_result().unwrap();
        assert_eq!((onceward.counts().takeovers, onceward.counts().claims), (1, 2), "{fault:?}");
    }
}

/// After an outage, all claims that must be released are looked for together.
#[tokio::test(start_paused = true)]
async fn claims_that_must_be_released_are_read_in_batches() {
    const CLAIMS: usize = 300;
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = Policy::http();
    let mut asks = tokio::task::JoinSet::new();
    cluster.store.script(std::iter::repeat_n(Fault::LoseReply, CLAIMS));
    cluster.store.fail_loads(10_000_000);
    for at in 0..CLAIMS {
        let (onceward, ask) = (onceward.clone(), ask(&format!("k{at}"), &policy));
        asks.spawn(async move { onceward.run(ask, never).await.unwrap_err() });
    }
    asks.join_all().await;
    tokio::time::sleep(secs(5)).await;
    let before = onceward.counts();
    cluster.store.heal();
    tokio::time::sleep(secs(2)).await;
    let counts = onceward.counts();
    assert_eq!(counts.releases, CLAIMS as u64);
    let loads = counts.store_loads - before.store_loads;
    assert!(loads <= 20, "{loads} loads for {CLAIMS} claims");
    for at in 0..CLAIMS {
        assert_eq!(onceward.receipt(&id(&format!("k{at}"))).await.unwrap(), None);
    }
}
