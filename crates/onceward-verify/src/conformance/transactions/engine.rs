//! Checks of the engine's `transact` on this driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Ask, Enqueued, Lease, OnUnknown, Outcome, Policy, State, Stopped, Verdict};
use tokio::sync::Notify;

use super::super::races::threads;
use super::super::trial::{Checked, DEADLINE, Wrong, ensure};
use super::fixture::{TransactionFixture, ask, id, ran, stop};
use super::{Harness, Tx};

/// How long one side of a deadlock waits for the other. Where transactions take turns it never comes.
const MEET_MAX: Duration = Duration::from_millis(300);

/// Threads with an engine each, as of processes of their own, and two callers in each.
pub(super) async fn duplicates_run_once<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    const INTENTS: usize = 6;
    let answers = threads(&fixture, |fixture, thread| async move {
        let engine = fixture.engine()?;
        let mut answers = Vec::new();
        for number in 0..INTENTS {
            let key = number.to_string();
            let one = |caller: usize| {
                let (fixture, engine, key) = (&fixture, &engine, &key);
                async move {
                    let work = async |_: Lease, mut tx: Tx<B>| {
                        fixture.harness.write(&mut tx, key).await?;
                        Ok(Outcome::succeeded(format!("by {thread}/{caller}")))
                    };
                    ran(engine.transact(fixture.transactions(), ask(key), work).await)
                }
            };
            let (first, second) = tokio::join!(one(0), one(1));
            answers.push([first?.outcome.body().clone(), second?.outcome.body().clone()]);
        }
        Ok(answers)
    })
    .await?;
    for number in 0..INTENTS {
        fixture.count_is(&number.to_string(), 1).await?;
        let mut bodies = answers.iter().flat_map(|answers| &answers[number]);
        let first = bodies.next().ok_or_else(|| Wrong("nobody asked".into()))?;
        let other = bodies.find(|body| *body != first);
        ensure!(other.is_none(), "intent {number} was answered with {first:?} and with {other:?}");
    }
    Ok(())
}

pub(super) async fn outcome_and_write_commit_together<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    let seen = AtomicBool::new(false);
    let work = async |_: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "a").await?;
        let nothing = async {
            fixture.count_is("a", 0).await?;
            fixture.is_absent(&id("a"), "its work is under way").await
        };
        nothing.await.map_err(|wrong| stop(&wrong))?;
        seen.store(true, Ordering::SeqCst);
        Ok(Outcome::succeeded("written"))
    };
    let first = ran(engine.transact(fixture.transactions(), ask("a"), work).await)?;
    ensure!(!first.replayed && seen.load(Ordering::SeqCst), "the first of its kind got {first:?}");
    fixture.count_is("a", 1).await?;
    // Another engine, which remembers nothing: it is in the database.
    for _ in 0..3 {
        let again = fixture.transact(&fixture.engine()?, ask("a")).await?;
        ensure!(
            again.replayed && again.outcome == first.outcome,
            "a retry got {again:?}, first was {first:?}"
        );
        ensure!(
            again.fence == first.fence,
            "a retry got the fence {}, first was {}",
            again.fence,
            first.fence
        );
    }
    fixture.count_is("a", 1).await
}

pub(super) async fn stopped_work_leaves_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    for stopped in [Stopped::before_effect("no"), Stopped::unknown("perhaps")] {
        let runs = AtomicU64::new(0);
        let work = async |_: Lease, mut tx: Tx<B>| {
            if runs.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(Outcome::succeeded("done again"));
            }
            fixture.harness.write(&mut tx, "a").await?;
            Err(stopped.clone())
        };
        let answer = engine.transact(fixture.transactions(), ask("a"), work).await;
        let runs = runs.load(Ordering::SeqCst);
        ensure!(runs == 1, "work that was stopped for good ran {runs} times");
        ensure!(answer.is_err(), "work was stopped, and the answer is {answer:?}");
        fixture.count_is("a", 0).await?;
        fixture.is_absent(&id("a"), "its work was stopped").await?;
    }
    let ran = fixture.transact(&engine, ask("a")).await?;
    ensure!(!ran.replayed, "nothing had happened, and a retry got {ran:?}");
    fixture.count_is("a", 1).await
}

pub(super) async fn dropped_work_leaves_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    for round in 0..12 {
        let engine = fixture.engine()?;
        let (written, beside) = (Arc::new(Notify::new()), fixture.clone());
        let reached = Arc::clone(&written);
        let running = tokio::spawn(async move {
            let work = async |_: Lease, mut tx: Tx<B>| {
                beside.harness.write(&mut tx, "a").await?;
                reached.notify_one();
                std::future::pending().await
            };
            engine.transact(beside.transactions(), ask("a"), work).await
        });
        let reached = tokio::time::timeout(DEADLINE, written.notified()).await;
        ensure!(reached.is_ok(), "round {round}: the work did not begin within {DEADLINE:?}");
        running.abort();
        drop(running.await);
        fixture.is_absent(&id("a"), "its work was dropped").await?;
        fixture.count_is("a", 0).await?;
    }
    let ran = fixture.transact(&fixture.engine()?, ask("a")).await?;
    ensure!(!ran.replayed, "nothing had happened, and a retry got {ran:?}");
    fixture.count_is("a", 1).await
}

/// A failure under the default policy is an answer, and what was written with it stays.
pub(super) async fn a_failure_is_an_outcome<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let work = async |_: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "a").await?;
        Ok(Outcome::failed("declined"))
    };
    ran(fixture.engine()?.transact(fixture.transactions(), ask("a"), work).await)?;
    fixture.count_is("a", 1).await?;
    let again = fixture.transact(&fixture.engine()?, ask("a")).await?;
    let failed = again.outcome.verdict() == Verdict::Failed;
    ensure!(again.replayed && failed, "it had failed, and a retry got {again:?}");
    fixture.count_is("a", 1).await
}

pub(super) async fn a_lapsed_claim_is_taken_over<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let policy = Policy::http()
        .to_builder()
        .with_on_unknown(OnUnknown::Retry)
        .with_lease(onceward::LEASE_MIN)
        .build()?;
    let ask = Ask::new(id("a"), *ask("a").fingerprint(), Arc::new(policy));
    let engine = fixture.engine()?;
    let claimed = engine.claim(ask.clone()).await?;
    let onceward::Claimed::Granted(ticket) = claimed else {
        return Err(Wrong(format!("nobody has it, and a claim got {claimed:?}")));
    };
    fixture.trial.until_over(&id("a")).await?;
    let ran = fixture.transact(&fixture.engine()?, ask.clone()).await?;
    ensure!(!ran.replayed, "the lease had ended, and the next got {ran:?}");
    ensure!(ran.fence > ticket.fence(), "took over {} with fence {}", ticket.fence(), ran.fence);
    fixture.count_is("a", 1).await?;
    let late = engine.complete(&ticket, Outcome::succeeded("late")).await?;
    ensure!(matches!(late, onceward::Changed::NotOwner(_)), "a former owner completed: {late:?}");
    Ok(())
}

pub(super) async fn what_waits_is_begun<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    let job = ask("a").with_input("input");
    let enqueued = engine.enqueue(job.clone()).await?;
    ensure!(enqueued == Enqueued::Accepted, "enqueued, and it is {enqueued:?}");
    let work = async |lease: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "a").await?;
        Err(Stopped::before_effect(format!("{:?}", lease.input())))
    };
    let answer = engine.transact(fixture.transactions(), job.clone(), work).await;
    ensure!(answer.is_err(), "work was stopped, and the answer is {answer:?}");
    let now = fixture.trial.find(&id("a")).await?.state;
    ensure!(now == State::Waiting, "rolled back to where it waited, and it is {now}");
    fixture.count_is("a", 0).await?;
    fixture.transact(&engine, job).await?;
    let now = fixture.trial.find(&id("a")).await?.state;
    ensure!(now == State::Done, "committed, and it is {now}");
    fixture.count_is("a", 1).await
}

/// Two intents that write the same two counters, each in its own order. Where that is a deadlock, the
/// database undoes one of them; its work is done again, and both are there once.
pub(super) async fn a_deadlock_is_repeated<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    const ROUNDS: u64 = 3;
    for round in 0..ROUNDS {
        let (here, there) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let one = crossing(&fixture, format!("one-{round}"), ["left", "right"], (&here, &there));
        let other = crossing(&fixture, format!("other-{round}"), ["right", "left"], (&there, &here));
        let (one, other) = tokio::join!(one, other);
        let either = |done: Result<Checked, _>| done.map_err(|_| Wrong("a transaction panicked".into()))?;
        either(one)?;
        either(other)?;
        fixture.count_is("left", 2 * (round + 1)).await?;
        fixture.count_is("right", 2 * (round + 1)).await?;
    }
    Ok(())
}

/// Writes the first key, waits until the other one has written its own first, and writes the second.
fn crossing<B: Harness>(
    fixture: &TransactionFixture<B>,
    name: String,
    keys: [&'static str; 2],
    (here, there): (&Arc<Notify>, &Arc<Notify>),
) -> tokio::task::JoinHandle<Checked> {
    let (fixture, here, there) = (fixture.clone(), Arc::clone(here), Arc::clone(there));
    tokio::spawn(async move {
        let engine = fixture.engine()?;
        let met = AtomicBool::new(false);
        let work = async |_: Lease, mut tx: Tx<B>| {
            fixture.harness.write(&mut tx, keys[0]).await?;
            here.notify_one();
            // Only the first time: when the work is done again, the other may be over.
            if !met.swap(true, Ordering::SeqCst) {
                let _ = tokio::time::timeout(MEET_MAX, there.notified()).await;
            }
            fixture.harness.write(&mut tx, keys[1]).await?;
            Ok(Outcome::succeeded("both"))
        };
        let done = ran(engine.transact(fixture.transactions(), ask(&name), work).await)?;
        ensure!(!done.replayed, "{name} was asked once, and got {done:?}");
        Ok(())
    })
}

/// A receipt is a receipt, however it was written.
pub(super) async fn run_and_transact_are_one<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    let first = ran(engine.run(ask("a"), async |_| Ok(Outcome::succeeded("by run"))).await)?;
    let again = fixture.transact(&fixture.engine()?, ask("a")).await?;
    ensure!(again.replayed && again.outcome == first.outcome, "after a run, a transaction got {again:?}");
    fixture.count_is("a", 0).await?;

    let first = fixture.transact(&engine, ask("b")).await?;
    let again = fixture.engine()?.run(ask("b"), async |_| Ok(Outcome::succeeded("by run"))).await;
    let again = ran(again)?;
    ensure!(again.replayed && again.outcome == first.outcome, "after a transaction, a run got {again:?}");
    fixture.count_is("b", 1).await
}
