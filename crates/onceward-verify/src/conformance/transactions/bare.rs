//! Checks of transactions that begin without a claim: the receipt is written last, over an existing claim.

use std::time::{Duration, Instant};

use onceward::{Applied, Fault, Seen, State, Transactions};

use super::super::trial::{Answered, Checked, DEADLINE, Wrong, ensure, held, record, same};
use super::fixture::{SHORT, SLACK, TransactionFixture, claim_of, completion, done, id, said};
use super::{Harness, Tx};

/// More transactions at the same time than any pool that is checked should allow.
const OPEN_MAX: usize = 64;

pub(super) async fn it_leaves_nothing_unless_it_commits<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    for round in 0..20 {
        let mut tx = begin(&fixture).await?;
        fixture.write(&mut tx, "a").await?;
        fixture.swap_one(&mut tx, &claim_of(&id("beside"))).await?;
        fixture.undo(tx, round).await;
        fixture.count_is("a", 0).await?;
        fixture.is_absent(&id("beside"), "undone").await?;
    }
    Ok(())
}

pub(super) async fn it_completes_a_claim_that_is_there<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let (id, claim) = (id("1"), held("claim"));
    let version = fixture.trial.create(&id, claim.clone()).await?;
    let mut tx = begin(&fixture).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.trial.find_as(&id, version, &claim).await?;
    fixture.commit(tx, &completion(&id, version)).await?;
    let found = fixture.trial.find(&id).await?;
    ensure!(found.version > version, "completed as {:?} over {version:?}", found.version);
    same(&id, &found, found.version, &done())?;
    fixture.count_is("a", 1).await
}

/// This fences a previous owner off.
pub(super) async fn it_commits_nothing_over_a_claim_that_moved<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let (moved, gone, never) = (id("moved"), id("gone"), id("never"));
    let first = fixture.trial.create(&moved, held("former owner")).await?;
    let taken = held("taken over");
    let second = fixture.trial.put(&moved, Seen::Version(first), taken.clone()).await?;
    let removed = fixture.trial.create(&gone, held("former owner")).await?;
    fixture.trial.remove(&gone, removed).await?;
    for (id, version) in [(&moved, first), (&gone, removed), (&never, first)] {
        let mut tx = begin(&fixture).await?;
        fixture.write(&mut tx, "a").await?;
        match fixture.transactions().commit(tx, &completion(id, version)).await {
            Err(Fault::Failed(error)) => {
                ensure!(error.applied() == Applied::No, "{id:?}: it lost, and may have committed: {error:?}");
                ensure!(
                    error.kind() == onceward::ErrorKind::Conflict,
                    "{id:?}: a completion that loses is a conflict, this one said {error:?}"
                );
            }
            Err(fault) => ensure!(false, "{id:?}: a completion that lost got {}", said(&fault)),
            Ok(()) => ensure!(false, "{id:?}: a completion over what was not there was committed"),
        }
        fixture.count_is("a", 0).await?;
    }
    fixture.trial.find_as(&moved, second, &taken).await?;
    fixture.is_absent(&gone, "removed before").await?;
    fixture.is_absent(&never, "it never was").await
}

/// A takeover and a commit at the same time: one of them happens.
pub(super) async fn it_races_with_a_takeover<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    for round in 0..20 {
        let name = round.to_string();
        let (id, taken) = (id(&name), held("taken over"));
        let version = fixture.trial.create(&id, record(State::Held, Some(Duration::ZERO), "claim")).await?;
        let mut tx = begin(&fixture).await?;
        fixture.write(&mut tx, &name).await?;
        let (beside, new, of) = (fixture.trial.clone(), taken.clone(), id.clone());
        let takeover =
            tokio::spawn(async move { beside.swap_one(&of, Seen::Version(version), Some(new)).await });
        let committed = fixture.transactions().commit(tx, &completion(&id, version)).await;
        let takeover = takeover.await.map_err(|_| Wrong("the store panicked".into()))??;
        let found = fixture.trial.find(&id).await?;
        match (committed, takeover) {
            (Ok(()), Answered::Lost(_)) => {
                same(&id, &found, found.version, &done())?;
                fixture.count_is(&name, 1).await?;
            }
            (Err(_), Answered::Won(version)) => {
                same(&id, &found, version, &taken)?;
                fixture.count_is(&name, 0).await?;
            }
            (committed, takeover) => {
                let committed = committed.map_err(|fault| said(&fault));
                ensure!(false, "{id:?}: committed {committed:?}, and the takeover got {takeover:?}");
            }
        }
    }
    Ok(())
}

pub(super) async fn waiting_for_a_connection_is_busy<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let mut open = Vec::new();
    for number in 0..OPEN_MAX {
        let start = Instant::now();
        match fixture.transactions().begin_bare(SHORT).await {
            Ok(tx) => open.push(tx),
            Err(Fault::Busy) => {
                let waited = start.elapsed();
                ensure!(waited < SHORT + SLACK, "with a patience of {SHORT:?} it waited {waited:?}");
                break;
            }
            Err(fault) => ensure!(false, "{number} are under way, the next got {}", said(&fault)),
        }
    }
    ensure!(!open.is_empty(), "not even one transaction could begin");
    for tx in open {
        fixture.rollback(tx).await;
    }
    let tx = begin(&fixture).await?;
    fixture.rollback(tx).await;
    Ok(())
}

async fn begin<B: Harness>(fixture: &TransactionFixture<B>) -> Checked<Tx<B>> {
    let begun = fixture.transactions().begin_bare(DEADLINE).await;
    begun.map_err(|fault| Wrong(format!("did not begin: {}", said(&fault))))
}
