//! Owners that die, stall or come back too late.

use onceward::receipt::{Status, UnknownReason};
use onceward::{
    Answer, Changed, OnUnknown, Outcome, Policy, Refusal, Settlement, State, Stopped, Worked, Worker,
};

use crate::cluster::{Cluster, ask, id, never, run_ready_tasks, secs};

fn retry() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(10)).build().unwrap()
}

fn hold() -> Policy {
    Policy::http().to_builder().with_lease(secs(10)).build().unwrap()
}

/// Starts work that never ends, in a process that is then killed.
async fn die_while_working(cluster: &Cluster, key: &str, policy: &Policy) {
    let (doomed, kill) = cluster.killable_process();
    let ask = ask(key, policy);
    let run = tokio::spawn(async move { doomed.run(ask, async |_| std::future::pending().await).await });
    run_ready_tasks().await;
    kill.now();
    run.abort();
}

/// Starts work that is done at once, but whose completion is stuck at the store's gate.
async fn finish_behind_a_closed_gate(
    cluster: &Cluster,
    owner: &onceward::Onceward,
    policy: Policy,
    outcome: &'static str,
) -> tokio::task::JoinHandle<onceward::Result<Answer>> {
    let (owner, store) = (owner.clone(), cluster.store.clone());
    let run = tokio::spawn(async move {
        let work = async move |_| {
            store.close_gate();
            Ok(Outcome::succeeded(outcome))
        };
        owner.run(ask("k", &policy), work).await
    });
    run_ready_tasks().await;
    run
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_succeeded_when_its_lease_ends_with_a_higher_fence() {
    let cluster = Cluster::new();
    die_while_working(&cluster, "k", &retry()).await;
    let onceward = cluster.process();
    let before = onceward.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    let start = tokio::time::Instant::now();
    let work = async |_| Ok(Outcome::succeeded("by the successor"));
    let completed = onceward.run(ask("k", &retry()), work).await.unwrap().into_result().unwrap();
    assert!(!completed.replayed && completed.fence > before);
    let waited = start.elapsed();
    assert!(waited >= secs(9) && waited < secs(11), "{waited:?}");
    assert_eq!(onceward.counts().takeovers, 1);
}

#[tokio::test(start_paused = true)]
async fn under_hold_a_dead_owner_leaves_an_unknown_outcome() {
    let cluster = Cluster::new();
    die_while_working(&cluster, "k", &hold()).await;
    let onceward = cluster.process();
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
    assert_eq!(
        refused,
        Answer::Refused(Refusal::OutcomeUnknown),
        "an ask under a laxer policy changes nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_begun_under_hold_is_not_repeated_for_an_ask_under_retry() {
    let cluster = Cluster::new();
    die_while_working(&cluster, "k", &hold()).await;
    tokio::time::sleep(secs(11)).await;
    let refused = cluster.process().run(ask("k", &retry()), never).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown));
}

/// A run under Retry that may have had its effect leaves the intent to be tried again; an ask whose policy holds unknown
/// outcomes must not be the one that tries.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_that_waits_for_a_retry_is_not_repeated_for_an_ask_under_hold() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let stopped = async |_| Err(Stopped::unknown("no answer"));
    onceward.run(ask("k", &retry()).with_input("what was asked"), stopped).await.unwrap_err();
    let waiting = onceward.receipt(&id("k")).await.unwrap().unwrap();
    assert_eq!(waiting.status.state(), State::Waiting);
    let holding = Worker::builder(onceward.clone()).with_operation("charge", hold(), never).build().unwrap();
    assert_eq!(holding.work_on(&id("k")).await.unwrap(), Worked::NeedsSettlement);
    let refused = onceward.run(ask("k", &hold()), never).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown));
    let Status::Unknown(unknown) = onceward.receipt(&id("k")).await.unwrap().unwrap().status else {
        panic!("it must be written down")
    };
    assert_eq!(unknown.job.unwrap().input, "what was asked");
    // Settled, it goes on.
    let settled =
        onceward.settle(&id("k"), unknown.claim.fence, &Settlement::ForceNotDone, &hold()).await.unwrap();
    assert_eq!(settled, Changed::Applied);
    let work = async |_| Ok(Outcome::succeeded("now"));
    let completed = onceward.run(ask("k", &hold()), work).await.unwrap().into_result().unwrap();
    assert!(!completed.replayed);
}

#[tokio::test(start_paused = true)]
async fn a_slow_former_owner_changes_nothing_and_gets_its_successors_outcome() {
    let cluster = Cluster::new();
    let slow = cluster.process();
    let first = finish_behind_a_closed_gate(&cluster, &slow, retry(), "by the former owner").await;
    // Its completion hangs at the gate. Another path to the store stays open for the successor.
    tokio::time::sleep(secs(11)).await;
    let successor =
        onceward::Onceward::builder(cluster.store.behind_the_gate()).accept_volatile().build().unwrap();
    let work = async |_| Ok(Outcome::succeeded("by the successor"));
    let completed = successor.run(ask("k", &retry()), work).await.unwrap().into_result().unwrap();
    assert_eq!(completed.outcome, Outcome::succeeded("by the successor"));
    cluster.store.open_gate();
    let late = first.await.unwrap().unwrap().into_result().unwrap();
    assert_eq!(late.outcome, Outcome::succeeded("by the successor"));
    assert!(late.replayed && late.fence == completed.fence);
    let counts = slow.counts();
    assert_eq!(counts.fenced_off + counts.leases_lost, 1, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_can_still_record_its_outcome_after_it_became_unknown() {
    let cluster = Cluster::new();
    let slow = cluster.process();
    let first = finish_behind_a_closed_gate(&cluster, &slow, hold(), "paid after all").await;
    tokio::time::sleep(secs(11)).await;
    let asker =
        onceward::Onceward::builder(cluster.store.behind_the_gate()).accept_volatile().build().unwrap();
    assert_eq!(asker.run(ask("k", &hold()), never).await.unwrap(), Answer::Refused(Refusal::OutcomeUnknown));
    cluster.store.open_gate();
    let late = first.await.unwrap().unwrap().into_result().unwrap();
    assert!(!late.replayed);
    let completed = asker.run(ask("k", &hold()), never).await.unwrap().into_result().unwrap();
    assert_eq!(completed.outcome, Outcome::succeeded("paid after all"));
}

/// Somebody has looked and said what happened. That is on record, so it is what everyone gets, the slow
/// owner included.
#[tokio::test(start_paused = true)]
async fn a_settlement_stands_against_the_owners_late_outcome() {
    let cluster = Cluster::new();
    let slow = cluster.process();
    let first = finish_behind_a_closed_gate(&cluster, &slow, hold(), "by the owner").await;
    tokio::time::sleep(secs(11)).await;
    let operator =
        onceward::Onceward::builder(cluster.store.behind_the_gate()).accept_volatile().build().unwrap();
    let fence = operator.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    let settlement = onceward::Settlement::Done(Outcome::succeeded("by the operator"));
    let settled = operator.settle(&id("k"), fence, &settlement, &hold()).await.unwrap();
    assert_eq!(settled, onceward::Changed::Applied);
    cluster.store.open_gate();
    let late = first.await.unwrap().unwrap().into_result().unwrap();
    assert_eq!((late.outcome, late.replayed), (Outcome::succeeded("by the operator"), true));
    assert_eq!((slow.counts().settlements_contradicted, slow.counts().fenced_off), (1, 1));
}

/// Somebody has said that it did not happen, and its owner says that it did. Nobody has begun again because of it, so the
/// outcome is recorded: otherwise the next ask would have the effect a second time.
#[tokio::test(start_paused = true)]
async fn an_outcome_replaces_a_settlement_as_not_done_that_nobody_has_acted_on() {
    let cluster = Cluster::new();
    let slow = cluster.process();
    let first = finish_behind_a_closed_gate(&cluster, &slow, hold(), "paid after all").await;
    tokio::time::sleep(secs(11)).await;
    let operator =
        onceward::Onceward::builder(cluster.store.behind_the_gate()).accept_volatile().build().unwrap();
    let fence = operator.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    let settled = operator.settle(&id("k"), fence, &Settlement::ForceNotDone, &hold()).await.unwrap();
    assert_eq!(settled, Changed::Applied);
    cluster.store.open_gate();
    assert!(!first.await.unwrap().unwrap().into_result().unwrap().replayed);
    assert_eq!((slow.counts().settlements_contradicted, slow.counts().fenced_off), (1, 0));
    let replay = operator.run(ask("k", &hold()), never).await.unwrap().into_result().unwrap();
    assert_eq!(replay.outcome, Outcome::succeeded("paid after all"));
}

/// The same for the holder of a ticket.
#[tokio::test(start_paused = true)]
async fn a_ticket_that_was_settled_otherwise_is_counted() {
    let onceward = Cluster::new().process();
    for (key, settlement, changes) in [
        ("done", Settlement::Done(Outcome::succeeded("by the operator")), false),
        ("not-done", Settlement::ForceNotDone, true),
    ] {
        let before = onceward.counts().settlements_contradicted;
        let onceward::Claimed::Granted(ticket) = onceward.claim(ask(key, &hold())).await.unwrap() else {
            panic!("nobody has it")
        };
        onceward.mark_unknown(&ticket).await.unwrap();
        onceward.settle(&id(key), ticket.fence(), &settlement, &hold()).await.unwrap();
        let changed = onceward.complete(&ticket, Outcome::succeeded("by its owner")).await.unwrap();
        assert_eq!(changed == Changed::Applied, changes, "{key}");
        assert_eq!(onceward.counts().settlements_contradicted - before, 1, "{key}");
        assert!(onceward.run(ask(key, &hold()), never).await.unwrap().into_result().unwrap().replayed);
    }
}

#[tokio::test(start_paused = true)]
async fn many_waiters_on_a_dead_owner_have_one_successor() {
    let cluster = Cluster::new();
    die_while_working(&cluster, "k", &retry()).await;
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let processes = [cluster.process(), cluster.process(), cluster.process()];
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
    assert!(answers.iter().all(|completed| completed.fence == answers[0].fence));
}
