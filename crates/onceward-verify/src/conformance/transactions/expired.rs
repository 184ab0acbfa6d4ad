//! Checks of an intent that begins again after its retention, while the steps of its previous life are still there: the
//! new life must find none of them, also where its claim is in a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Ask, Claimed, Enqueued, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Retention};

use super::super::trial::{Checked, Wrong, ensure};
use super::fixture::{TransactionFixture, completion, id, ran};
use super::{Harness, Tx};

/// Work in a transaction runs its steps again, and the first write of that transaction does not stand in the way.
pub(super) async fn a_transaction_finds_no_step_of_a_previous_life<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    previous_life(&fixture).await?;
    let (engine, runs) = (fixture.engine()?, AtomicU64::new(0));
    let work = async |lease: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "a").await?;
        let found = lease.recorded("step").await?;
        runs.fetch_add(u64::from(found.is_none()), Ordering::SeqCst);
        Ok(Outcome::succeeded("second life"))
    };
    let second = ran(engine.transact(fixture.transactions(), ask_with_retention(LONG)?, work).await)?;
    ensure!(!second.replayed, "past its retention, and it got {second:?}");
    let runs = runs.load(Ordering::SeqCst);
    ensure!(runs == 1, "{runs} runs of the second life found no step of the first, and there was one run");
    fixture.count_is("a", 1).await?;
    has_no_steps(&engine).await
}

/// A claim inside the caller's transaction removes the steps with it: all of that commits or none.
pub(super) async fn a_claim_inside_finds_no_step_of_a_previous_life<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let expired = previous_life(&fixture).await?;
    let (engine, own) = (fixture.engine()?, id("own"));
    let ask = ask_with_retention(LONG)?;
    for commits in [false, true] {
        let (mut tx, version) = fixture.claim(&own).await?;
        let ticket = match engine.claim_in(&mut tx, &ask).await? {
            Claimed::Granted(ticket) => ticket,
            Claimed::Answered(answer) => {
                return Err(Wrong(format!("past its retention, and a claim got {answer:?}")));
            }
        };
        engine.complete_in(&mut tx, &ticket, &Outcome::succeeded("second life")).await?;
        if commits {
            fixture.commit(tx, &completion(&own, version)).await?;
        } else {
            fixture.rollback(tx).await;
            has_steps(&engine, &expired).await?;
        }
    }
    has_no_steps(&engine).await
}

/// The same for what is enqueued inside the caller's transaction.
pub(super) async fn an_enqueued_intent_has_no_step_of_a_previous_life<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let expired = previous_life(&fixture).await?;
    let (engine, own) = (fixture.engine()?, id("own"));
    let ask = ask_with_retention(LONG)?.with_input("input");
    for commits in [false, true] {
        let (mut tx, version) = fixture.claim(&own).await?;
        let enqueued = engine.enqueue_in(&mut tx, &ask).await?;
        ensure!(enqueued == Enqueued::Accepted, "past its retention, and enqueued it is {enqueued:?}");
        if commits {
            fixture.commit(tx, &completion(&own, version)).await?;
        } else {
            fixture.rollback(tx).await;
            has_steps(&engine, &expired).await?;
        }
    }
    has_no_steps(&engine).await
}

/// Longer than any check takes.
const LONG: Duration = Duration::from_hours(1);

fn ask_with_retention(retention: Duration) -> Checked<Ask> {
    let policy = Policy::http().to_builder().with_retention(Retention::For(retention)).build()?;
    Ok(Ask::new(id("expired"), Fingerprint::of(b"same"), Arc::new(policy)))
}

/// An intent that is past its retention, with a step in a step, and nobody has swept. Gives the ids of the steps.
async fn previous_life<B: Harness>(fixture: &TransactionFixture<B>) -> Checked<[Id; 2]> {
    let ask = ask_with_retention(Duration::from_millis(1))?;
    let step = ask.id().step("step")?;
    let steps = [step.clone(), step.step("inner")?];
    let work = async |lease: Lease| {
        let step = lease.step("step", async |lease: Lease| {
            lease.step("inner", async |_| Ok(Outcome::succeeded("first life"))).await?;
            Ok(Outcome::succeeded("first life"))
        });
        step.await?;
        Ok(Outcome::succeeded("first life"))
    };
    ran(fixture.engine()?.run(ask.clone(), work).await)?;
    for id in steps.iter().chain([ask.id()]) {
        fixture.trial.until_over(id).await?;
    }
    Ok(steps)
}

async fn has_steps(engine: &Onceward, steps: &[Id]) -> Checked {
    for step in steps {
        let found = engine.receipt(step).await?;
        ensure!(found.is_some(), "{step:?} was removed in a transaction that was rolled back");
    }
    Ok(())
}

async fn has_no_steps(engine: &Onceward) -> Checked {
    let step = id("expired").step("step")?;
    for step in [step.step("inner")?, step] {
        let found = engine.receipt(&step).await?;
        ensure!(found.is_none(), "{step:?} of a previous life is there for the next: {found:?}");
    }
    Ok(())
}
