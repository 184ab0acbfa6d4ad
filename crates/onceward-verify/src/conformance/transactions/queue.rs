//! Checks of other intents inside a transaction: what it enqueues or completes takes effect when it commits.

use std::sync::Arc;

use onceward::{Ask, Claimed, Enqueued, Fingerprint, Lease, Onceward, Outcome, Policy, State, Stopped};

use super::super::trial::{Checked, Wrong, ensure};
use super::fixture::{TransactionFixture, ask, completion, id, ran};
use super::{Harness, Tx};

pub(super) async fn enqueued_and_rolled_back_is_not_there<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let (engine, own) = (fixture.engine()?, id("own"));
    for round in 0..2 {
        let (mut tx, _) = fixture.claim(&own).await?;
        let enqueued = engine.enqueue_in(&mut tx, &job()).await?;
        ensure!(enqueued == Enqueued::Accepted, "enqueued inside, and it is {enqueued:?}");
        fixture.undo(tx, round).await;
        fixture.is_absent(job().id(), "enqueued and rolled back").await?;
    }
    // The same through the engine: work that ends without an outcome.
    let work = async |_: Lease, mut tx: Tx<B>| {
        engine.enqueue_in(&mut tx, &job()).await?;
        Err(Stopped::before_effect("told to stop"))
    };
    let answer = engine.transact(fixture.transactions(), ask("own"), work).await;
    ensure!(answer.is_err(), "work was stopped, and the answer is {answer:?}");
    fixture.is_absent(job().id(), "enqueued and rolled back").await
}

pub(super) async fn enqueued_and_committed_is_there<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let (engine, own) = (fixture.engine()?, id("own"));
    let (mut tx, version) = fixture.claim(&own).await?;
    let enqueued = engine.enqueue_in(&mut tx, &job()).await?;
    ensure!(enqueued == Enqueued::Accepted, "enqueued inside, and it is {enqueued:?}");
    let again = engine.enqueue_in(&mut tx, &job()).await?;
    ensure!(again == Enqueued::AlreadyThere(State::Waiting), "enqueued twice inside, and it is {again:?}");
    fixture.is_absent(job().id(), "not committed").await?;
    fixture.commit(tx, &completion(&own, version)).await?;
    waits_with_its_input(&engine).await?;
    let again = engine.enqueue(job()).await?;
    ensure!(again == Enqueued::AlreadyThere(State::Waiting), "enqueued once more, and it is {again:?}");
    let work = async |lease: Lease| Ok(Outcome::succeeded(lease.input().cloned().unwrap_or_default()));
    let ran = ran(engine.run(job(), work).await)?;
    ensure!(&ran.outcome.body()[..] == b"input", "it ran with another input: {:?}", ran.outcome.body());
    Ok(())
}

async fn waits_with_its_input(engine: &Onceward) -> Checked {
    let receipt = engine.receipt(job().id()).await?;
    let receipt = receipt.ok_or_else(|| Wrong("enqueued and committed, and it is not there".into()))?;
    let input = receipt.status.job().map(|job| job.input.clone()).unwrap_or_default();
    ensure!(receipt.status.state() == State::Waiting, "enqueued, and it is {}", receipt.status.state());
    ensure!(&input[..] == b"input", "enqueued, and its input is {input:?}");
    Ok(())
}

/// A second intent claimed and completed by hand, as in a transaction that the caller began.
pub(super) async fn claimed_and_completed_inside_is_all_or_nothing<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let (engine, own, second) = (fixture.engine()?, id("own"), ask("second"));
    for commits in [false, true] {
        let (mut tx, version) = fixture.claim(&own).await?;
        let ticket = match engine.claim_in(&mut tx, &second).await? {
            Claimed::Granted(ticket) => ticket,
            Claimed::Answered(answer) => {
                return Err(Wrong(format!("nobody has it, and a claim got {answer:?}")));
            }
        };
        fixture.write(&mut tx, "a").await?;
        let outcome = Outcome::succeeded("inside");
        engine.complete_in(&mut tx, &ticket, &outcome).await?;
        let again = engine.claim_in(&mut tx, &second).await?;
        ensure!(matches!(again, Claimed::Answered(_)), "completed inside, and a claim inside got {again:?}");
        fixture.is_absent(second.id(), "not committed").await?;
        if commits {
            fixture.commit(tx, &completion(&own, version)).await?;
        } else {
            fixture.rollback(tx).await;
            fixture.is_absent(second.id(), "rolled back").await?;
            fixture.count_is("a", 0).await?;
        }
    }
    fixture.count_is("a", 1).await?;
    let replay = ran(fixture.engine()?.run(second, async |_| Ok(Outcome::succeeded("ran again"))).await)?;
    ensure!(
        replay.replayed && &replay.outcome.body()[..] == b"inside",
        "completed inside and committed, a retry got {replay:?}"
    );
    Ok(())
}

fn job() -> Ask {
    Ask::new(id("job"), Fingerprint::of(b"input"), Arc::new(Policy::http())).with_input("input")
}
