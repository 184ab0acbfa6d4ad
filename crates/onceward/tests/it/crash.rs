//! Owners that die, stall or come back too late.

use onceward::receipt::{Status, UnknownReason};
use onceward::{Answer, OnUnknown, Outcome, Policy, Refusal};

use crate::stage::{Stage, ask, id, never, secs, settle_down};

fn retry() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(10)).build().unwrap()
}

fn hold() -> Policy {
    Policy::http().to_builder().with_lease(secs(10)).build().unwrap()
}

/// Starts work that never ends, in a process that is then killed.
async fn die_while_working(stage: &Stage, key: &str, policy: &Policy) {
    let (doomed, kill) = stage.mortal_process();
    let ask = ask(key, policy);
    let run = tokio::spawn(async move { doomed.run(ask, async |_| std::future::pending().await).await });
    settle_down().await;
    kill.now();
    run.abort();
}

/// Starts work that is done at once, but whose completion is stuck at the store's gate.
async fn finish_behind_a_closed_gate(
    stage: &Stage,
    owner: &onceward::Onceward,
    policy: Policy,
    outcome: &'static str,
) -> tokio::task::JoinHandle<onceward::Result<Answer>> {
    let (owner, store) = (owner.clone(), stage.store.clone());
    let run = tokio::spawn(async move {
        let work = async move |_| {
            store.close_gate();
            Ok(Outcome::succeeded(outcome))
        };
        owner.run(ask("k", &policy), work).await
    });
    settle_down().await;
    run
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_succeeded_when_its_lease_ends_with_a_higher_fence() {
    let stage = Stage::new();
    die_while_working(&stage, "k", &retry()).await;
    let onceward = stage.process();
    let before = onceward.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    let start = tokio::time::Instant::now();
    let work = async |_| Ok(Outcome::succeeded("by the successor"));
    let ran = onceward.run(ask("k", &retry()), work).await.unwrap().into_result().unwrap();
    assert!(!ran.replayed && ran.fence > before);
    let waited = start.elapsed();
    assert!(waited >= secs(9) && waited < secs(11), "{waited:?}");
    assert_eq!(onceward.counts().takeovers, 1);
}

#[tokio::test(start_paused = true)]
async fn under_hold_a_dead_owner_leaves_an_unknown_outcome() {
    let stage = Stage::new();
    die_while_working(&stage, "k", &hold()).await;
    let onceward = stage.process();
    tokio::time::sleep(secs(11)).await;
    let refused = onceward.run(ask("k", &hold()), never).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown));
    let Some(Status::Unknown(unknown)) =
        onceward.receipt(&id("k")).await.unwrap().map(|receipt| receipt.status)
    else {
        panic!("it must be written down")
    };
    assert_eq!(unknown.reason, UnknownReason::LeaseEnded);
    let refused = onceward.run(ask("k", &retry()), never).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown), "a laxer asker changes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_run_begun_under_hold_is_not_repeated_for_an_asker_under_retry() {
    let stage = Stage::new();
    die_while_working(&stage, "k", &hold()).await;
    tokio::time::sleep(secs(11)).await;
    let refused = stage.process().run(ask("k", &retry()), never).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown));
}

#[tokio::test(start_paused = true)]
async fn a_slow_former_owner_changes_nothing_and_gets_its_successors_outcome() {
    let stage = Stage::new();
    let slow = stage.process();
    let first = finish_behind_a_closed_gate(&stage, &slow, retry(), "by the former owner").await;
    // Its completion hangs at the gate. Another path to the store stays open for the successor.
    tokio::time::sleep(secs(11)).await;
    let successor =
        onceward::Onceward::builder(stage.store.behind_the_gate()).accept_volatile().build().unwrap();
    let work = async |_| Ok(Outcome::succeeded("by the successor"));
    let ran = successor.run(ask("k", &retry()), work).await.unwrap().into_result().unwrap();
    assert_eq!(ran.outcome, Outcome::succeeded("by the successor"));
    stage.store.open_gate();
    let late = first.await.unwrap().unwrap().into_result().unwrap();
    assert_eq!(late.outcome, Outcome::succeeded("by the successor"));
    assert!(late.replayed && late.fence == ran.fence);
    let counts = slow.counts();
    assert_eq!(counts.fenced_off + counts.leases_lost, 1, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_put_in_doubt_can_end_the_doubt_itself() {
    let stage = Stage::new();
    let slow = stage.process();
    let first = finish_behind_a_closed_gate(&stage, &slow, hold(), "paid after all").await;
    tokio::time::sleep(secs(11)).await;
    let asker = onceward::Onceward::builder(stage.store.behind_the_gate()).accept_volatile().build().unwrap();
    assert_eq!(asker.run(ask("k", &hold()), never).await.unwrap(), Answer::Refused(Refusal::OutcomeUnknown));
    stage.store.open_gate();
    let late = first.await.unwrap().unwrap().into_result().unwrap();
    assert!(!late.replayed);
    let ran = asker.run(ask("k", &hold()), never).await.unwrap().into_result().unwrap();
    assert_eq!(ran.outcome, Outcome::succeeded("paid after all"));
}

/// Somebody has looked and said what happened. That is on record, so it is what everyone gets, the slow
/// owner included.
#[tokio::test(start_paused = true)]
async fn a_settlement_stands_against_the_owners_late_outcome() {
    let stage = Stage::new();
    let slow = stage.process();
    let first = finish_behind_a_closed_gate(&stage, &slow, hold(), "by the owner").await;
    tokio::time::sleep(secs(11)).await;
    let operator =
        onceward::Onceward::builder(stage.store.behind_the_gate()).accept_volatile().build().unwrap();
    let fence = operator.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    let settlement = onceward::Settlement::Done(Outcome::succeeded("by the operator"));
    let settled = operator.settle(&id("k"), fence, &settlement, &hold()).await.unwrap();
    assert_eq!(settled, onceward::Changed::Applied);
    stage.store.open_gate();
    let late = first.await.unwrap().unwrap().into_result().unwrap();
    assert_eq!((late.outcome, late.replayed), (Outcome::succeeded("by the operator"), true));
}

#[tokio::test(start_paused = true)]
async fn many_waiters_on_a_dead_owner_have_one_successor() {
    let stage = Stage::new();
    die_while_working(&stage, "k", &retry()).await;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let processes = [stage.process(), stage.process(), stage.process()];
    let mut waiters = tokio::task::JoinSet::new();
    for at in 0..60 {
        let (process, runs) = (processes[at % 3].clone(), runs.clone());
        waiters.spawn(async move {
            let work = async move |_| {
                runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                tokio::time::sleep(secs(1)).await;
                Ok(Outcome::succeeded("once"))
            };
            process.run(ask("k", &retry()), work).await.unwrap().into_result().unwrap()
        });
    }
    let answers = waiters.join_all().await;
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert!(answers.iter().all(|ran| ran.fence == answers[0].fence));
}
