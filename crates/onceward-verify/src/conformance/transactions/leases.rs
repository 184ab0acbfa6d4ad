//! Checks of runs that commit their receipt in a transaction of their work's own ([`Lease::transact`]): as the HTTP layer
//! does for handlers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::receipt::{Done, End, Status};
use onceward::{
    Attempt, ErrorKind, Fence, Lease, Outcome, Record, Seen, State, Stopped, Swap, Swapped, codec,
};

use super::super::trial::{Checked, FAR, Wrong, ensure};
use super::failing_commits::{FaultyTransactions, InjectedFault};
use super::fixture::{TransactionFixture, ask, id, ran, stop};
use super::{Harness, Tx};

pub(super) async fn a_run_commits_its_receipt_with_its_write<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let is_still_held = async || {
        fixture.count_is("a", 0).await?;
        let state = fixture.trial.find(&id("a")).await?.state;
        ensure!(state == State::Held, "not committed yet, and others see the receipt as {state}");
        Ok(())
    };
    let run = async |lease: Lease| {
        let stopped = lease
            .transact(fixture.transactions(), async |mut tx: Tx<B>| {
                fixture.harness.write(&mut tx, "a").await?;
                Err(Stopped::before_effect("not yet"))
            })
            .await;
        if stopped.is_ok() {
            return Err(Stopped::unknown("work that was stopped was committed"));
        }
        is_still_held().await.map_err(|wrong| stop(&wrong))?;
        let committed = lease
            .transact(fixture.transactions(), async |mut tx: Tx<B>| {
                fixture.harness.write(&mut tx, "a").await?;
                is_still_held().await.map_err(|wrong| stop(&wrong))?;
                Ok(Outcome::succeeded("committed"))
            })
            .await?;
        // Both are there before the run is over.
        let both = async {
            fixture.count_is("a", 1).await?;
            let state = fixture.trial.find(&id("a")).await?.state;
            ensure!(state == State::Done, "committed, and others see the receipt as {state}");
            Ok(())
        };
        both.await.map_err(|wrong: Wrong| stop(&wrong))?;
        Ok(committed.outcome)
    };
    let first = ran(fixture.engine()?.run(ask("a"), run).await)?;
    ensure!(&first.outcome.body()[..] == b"committed", "the run was answered with {first:?}");
    let again = fixture.transact(&fixture.engine()?, ask("a")).await?;
    ensure!(again.replayed && again.outcome == first.outcome, "a retry got {again:?}, first was {first:?}");
    fixture.count_is("a", 1).await
}

/// Its claim was taken over, and it does not know yet.
pub(super) async fn a_former_owner_commits_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    let run = async |lease: Lease| {
        let taken = successor(&fixture, &lease).await.map_err(|wrong| stop(&wrong))?;
        let swapped = fixture.trial.store.swap(std::slice::from_ref(&taken)).await?;
        if !matches!(swapped[..], [Swapped::Won(_)]) {
            return Err(Stopped::unknown(format!("nobody else writes it, and a takeover got {swapped:?}")));
        }
        let late = lease
            .transact(fixture.transactions(), async |mut tx: Tx<B>| {
                fixture.harness.write(&mut tx, "a").await?;
                Ok(Outcome::succeeded("late"))
            })
            .await;
        Err(Stopped::unknown(match late {
            Err(error) if error.kind() == ErrorKind::LeaseLost => "as it must be".into(),
            late => format!("a former owner committed, or was told something else: {late:?}"),
        }))
    };
    let answer = ran(engine.run(ask("a"), run).await)?;
    ensure!(
        answer.replayed && &answer.outcome.body()[..] == b"by the successor",
        "it was taken over and done by another, and its caller got {answer:?}"
    );
    fixture.count_is("a", 0).await
}

/// A takeover while the transaction commits: one of the two happens.
pub(super) async fn a_commit_races_with_a_takeover<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    for round in 0..20_u64 {
        let (engine, key) = (fixture.engine()?, round.to_string());
        let takeover = Mutex::new(None);
        let run = async |lease: Lease| {
            let taken = successor(&fixture, &lease).await.map_err(|wrong| stop(&wrong))?;
            let committed = lease.transact(fixture.transactions(), async |mut tx: Tx<B>| {
                fixture.harness.write(&mut tx, &key).await?;
                let (store, taken) = (fixture.trial.store.clone(), taken.clone());
                let swap = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_micros(round * 50)).await;
                    store.swap(&[taken]).await
                });
                *takeover.lock().expect("nobody panics with it") = Some(swap);
                Ok(Outcome::succeeded("in time"))
            });
            Ok(committed.await?.outcome)
        };
        let answer = ran(engine.run(ask(&key), run).await)?;
        let takeover = takeover.into_inner().expect("nobody panics with it");
        let takeover = takeover.ok_or_else(|| Wrong(format!("round {round}: the work did not run")))?;
        let taken = takeover.await.map_err(|_| Wrong("the store panicked".into()))??;
        let taken = matches!(taken[..], [Swapped::Won(_)]);
        let body = &answer.outcome.body()[..];
        let expected: &[u8] = if taken { b"by the successor" } else { b"in time" };
        ensure!(body == expected, "round {round}: taken over: {taken}, and its caller got {answer:?}");
        fixture.count_is(&key, u64::from(!taken)).await?;
    }
    Ok(())
}

/// What an engine elsewhere writes that has taken the run of this lease over and has finished it.
async fn successor<B: Harness>(fixture: &TransactionFixture<B>, lease: &Lease) -> Checked<Swap> {
    let found = fixture.trial.find(lease.id()).await?;
    let Status::Held(held) = codec::decode(&found)?.status else {
        return Err(Wrong(format!("its work runs, and its receipt is {}", found.state)));
    };
    let mut claim = held.claim;
    (claim.attempt, claim.fence) = (Attempt(7), Fence(found.version.0 + 1));
    let done = Status::Done(Done::new(claim, End::Outcome(Outcome::succeeded("by the successor"))));
    let new = Record::new(done.state(), codec::encode(&done)).with_due_in(FAR);
    Ok(Swap { id: lease.id().clone(), seen: Seen::Version(found.version), new: Some(new) })
}

pub(super) async fn a_commit_without_an_answer_is_looked_up<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    is_there_once(&fixture, InjectedFault::AnswerLost, 1, 1).await
}

pub(super) async fn a_commit_that_did_not_happen_is_repeated<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    is_there_once(&fixture, InjectedFault::CommitLost, 2, 3).await?;
    is_there_once(&fixture, InjectedFault::UndoneAtCommit, 3, 4).await
}

/// With a fault `times` times, the transaction of a run is done `runs` times, and its write is there once.
async fn is_there_once<B: Harness>(
    fixture: &TransactionFixture<B>,
    fault: InjectedFault,
    times: usize,
    runs: u64,
) -> Checked {
    let key = format!("{fault:?}");
    let faulty = FaultyTransactions::new(fixture.transactions(), fault, times);
    let worked = AtomicU64::new(0);
    let run = async |lease: Lease| {
        let committed = lease.transact(&faulty, async |mut tx: Tx<B>| {
            worked.fetch_add(1, Ordering::SeqCst);
            fixture.harness.write(&mut tx, &key).await?;
            Ok(Outcome::succeeded("written"))
        });
        Ok(committed.await?.outcome)
    };
    let done = ran(fixture.engine()?.run(ask(&key), run).await)?;
    ensure!(!done.replayed, "{fault:?}: its own commit was taken for somebody else's: {done:?}");
    let worked = worked.load(Ordering::SeqCst);
    ensure!(worked == runs, "{fault:?}: its transaction ran {worked} times, and must {runs} times");
    fixture.count_is(&key, 1).await?;
    let again = fixture.transact(&fixture.engine()?, ask(&key)).await?;
    ensure!(again.replayed, "{fault:?}: a retry got {again:?}");
    fixture.count_is(&key, 1).await
}
