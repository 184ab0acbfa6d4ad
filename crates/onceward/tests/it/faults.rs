//! Stores that fail, with and without the write having happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::receipt::Status;
use onceward::{Applied, ErrorKind, OnUnknown, Outcome, Policy, Recorded, Sight};

use crate::stage::{Fault, Stage, ask, id, never, paid, secs, settle_down};

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_recognises_itself() {
    for fault in [Fault::LoseReply, Fault::LoseWrite] {
        let stage = Stage::new();
        let onceward = stage.process();
        stage.store.script([fault]);
        let ran = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().ran().unwrap();
        assert!(!ran.replayed, "{fault:?}");
        assert!(stage.process().run(ask("k", &Policy::http()), never).await.unwrap().ran().unwrap().replayed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_refused_is_an_error_and_runs_nothing() {
    let stage = Stage::new();
    let onceward = stage.process();
    stage.store.script([Fault::Refuse]);
    let error = onceward.run(ask("k", &Policy::http()), never).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No));
    assert!(!onceward.run(ask("k", &Policy::http()), paid).await.unwrap().ran().unwrap().replayed);
}

/// Whoever acts unguarded while the store is down must not do so where a run is known of.
#[tokio::test(start_paused = true)]
async fn a_failure_says_whether_a_receipt_had_been_seen() {
    let stage = Stage::new();
    let policy = Policy::http().on_unknown(OnUnknown::Retry);
    stage.store.script([Fault::Refuse]);
    let error = stage.process().run(ask("k", &policy), never).await.unwrap_err();
    assert_eq!((error.applied(), error.sight()), (Applied::No, Sight::Nothing));

    let onceward::Claimed::Yes(_) = stage.process().claim(ask("k", &policy)).await.unwrap() else {
        panic!("the key is free")
    };
    tokio::time::sleep(policy.lease_duration()).await;
    // The lapsed claim is seen, and taking it over fails.
    stage.store.script([Fault::Pass, Fault::Refuse]);
    let error = stage.process().run(ask("k", &policy), never).await.unwrap_err();
    assert_eq!((error.applied(), error.sight()), (Applied::No, Sight::Receipt));
}

/// The claim may stand although nobody got to run under it; it is given back as soon as the store
/// answers again, so that the key is not wedged for a whole lease.
#[tokio::test(start_paused = true)]
async fn a_claim_in_doubt_is_given_back() {
    let stage = Stage::new();
    let onceward = stage.process();
    stage.store.script([Fault::LoseReply]);
    stage.store.fail_loads(1);
    let error = onceward.run(ask("k", &Policy::http()), never).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe);
    settle_down().await;
    assert_eq!(onceward.show(&id("k")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_is_reported_to_all_who_wait_at_once() {
    let stage = Stage::new();
    let onceward = stage.process();
    stage.store.script([Fault::Refuse]);
    stage.store.close_gate();
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let onceward = onceward.clone();
        asks.spawn(async move { onceward.run(ask("k", &Policy::http()), never).await });
    }
    settle_down().await;
    stage.store.open_gate();
    let answers = asks.join_all().await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable)));
    assert_eq!(stage.store.batches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_was_lost_is_found_to_have_happened() {
    let stage = Stage::new();
    let onceward = stage.process();
    stage.store.script([Fault::Pass, Fault::LoseReply]);
    let ran = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().ran().unwrap();
    assert_eq!((ran.replayed, ran.recorded), (false, Recorded::NotYet));
    tokio::time::sleep(secs(1)).await;
    assert_eq!((onceward.counts().completions, onceward.counts().fenced_off), (1, 0));
    assert!(stage.process().run(ask("k", &Policy::http()), never).await.unwrap().ran().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_insisted_on_while_the_lease_lasts() {
    let stage = Stage::new();
    let onceward = stage.process();
    let faults = [Fault::Refuse, Fault::LoseWrite, Fault::Refuse, Fault::LoseWrite, Fault::Refuse];
    stage.store.script([Fault::Pass].into_iter().chain(faults));
    stage.store.fail_loads(3);
    let ran = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().ran().unwrap();
    assert_eq!(ran.recorded, Recorded::NotYet, "the caller is not kept waiting");
    let other = onceward.run(ask("k", &Policy::http()), never).await.unwrap().ran().unwrap();
    assert!(other.replayed, "a duplicate here waits for it");
    assert!(stage.process().run(ask("k", &Policy::http()), never).await.unwrap().ran().unwrap().replayed);
    assert_eq!((onceward.counts().completions_delayed, onceward.counts().completions), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_before_the_lease_ends_is_given_up() {
    let stage = Stage::new();
    let onceward = stage.process();
    let policy = Policy::http().lease(secs(5)).unwrap();
    stage.store.script([Fault::Pass].into_iter().chain([Fault::Refuse; 1_000]));
    let ran = onceward.run(ask("k", &policy), paid).await.unwrap().ran().unwrap();
    assert_eq!(ran.recorded, Recorded::NotYet);
    tokio::time::sleep(secs(8)).await;
    assert_eq!(onceward.counts().completions_given_up, 1);
    stage.store.heal();
    let refused = onceward.run(ask("k", &policy), never).await.unwrap();
    assert_eq!(refused, onceward::Answer::Refused(onceward::Refusal::OutcomeUnknown));
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_is_a_release() {
    for fault in [Fault::LoseReply, Fault::LoseWrite, Fault::Refuse] {
        let stage = Stage::new();
        let onceward = stage.process();
        stage.store.script([Fault::Pass, fault]);
        let stop = async |_| Err(onceward::Stopped::before_effect("no connection"));
        onceward.run(ask("k", &Policy::http()), stop).await.unwrap_err();
        let ran = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().ran().unwrap();
        assert!(!ran.replayed, "{fault:?}");
        assert_eq!(onceward.counts().fenced_off, 0);
    }
}

/// Random faults on every call, many callers, one id after the other: each runs once, or is in doubt.
#[tokio::test(start_paused = true)]
async fn no_mix_of_faults_runs_anything_twice_under_hold() {
    let stage = Stage::new();
    let processes = [stage.process(), stage.process()];
    let policy = Policy::http().lease(secs(2)).unwrap();
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
        stage.store.script(faults.iter().copied());
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
        stage.store.heal();
        tokio::time::sleep(secs(5)).await;
        processes[0].run(ask(&key, &policy), paid).await.unwrap();
        let status = processes[1].show(&id(&key)).await.unwrap().unwrap().status;
        let runs = runs.load(Ordering::SeqCst);
        assert!(runs <= 1, "round {round} ran {runs} times under {faults:?}");
        assert!(matches!(status, Status::Done(_) | Status::Unknown(_)), "round {round}: {status:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_receipt_is_an_error_that_names_it_and_runs_nothing() {
    use onceward::{Record, Seen, State, Store, Swap};
    let stage = Stage::new();
    let record = Record { state: State::Done, due_in: None, bytes: "not a receipt".into() };
    stage.store.swap(&[Swap { id: id("k"), seen: Seen::Absent, new: Some(record) }]).await.unwrap();
    let onceward = stage.process();
    let policy = Policy::http().on_unknown(OnUnknown::Retry);
    let error = onceward.run(ask("k", &policy), never).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
}
