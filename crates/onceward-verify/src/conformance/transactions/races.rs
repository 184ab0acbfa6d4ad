//! Checks of races between transactions on real threads.

use std::collections::BTreeMap;
use std::time::Instant;

use onceward::{Fault, Seen, Swap, Transactions};

use super::super::races::{count, counter, threads};
use super::super::trial::{Answered, Checked, DEADLINE, Wrong, ensure, same};
use super::fixture::{TransactionFixture, claim_of, completion, done, id, said};
use super::{Harness, Tx};

/// Every thread wants every id; of each, one commits, and everyone else finds that.
pub(super) async fn one_claim_of_each_id_commits<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    const IDS: usize = 12;
    let committed = threads(&fixture, |fixture, _| async move {
        let mut committed = Vec::new();
        for number in 0..IDS {
            if commits(&fixture, &number.to_string()).await? {
                committed.push(number);
            }
        }
        Ok(committed)
    })
    .await?;
    let mut winners: BTreeMap<usize, usize> = BTreeMap::new();
    for number in committed.into_iter().flatten() {
        *winners.entry(number).or_default() += 1;
    }
    for number in 0..IDS {
        let commits = winners.get(&number).copied().unwrap_or_default();
        ensure!(commits == 1, "the claim of one id was committed {commits} times");
        fixture.count_is(&number.to_string(), 1).await?;
    }
    Ok(())
}

/// Whether this one committed; if not, somebody else has.
async fn commits<B: Harness>(fixture: &TransactionFixture<B>, name: &str) -> Checked<bool> {
    let (id, start) = (id(name), Instant::now());
    while start.elapsed() < DEADLINE {
        let (mut tx, answer) = fixture.begin(&claim_of(&id)).await?;
        let version = match answer {
            Answered::Won(version) => version,
            Answered::Lost(found) => {
                fixture.rollback(tx).await;
                let found = found.ok_or_else(|| Wrong(format!("{id:?}: lost to nothing")))?;
                same(&id, &found, found.version, &done())?;
                return Ok(false);
            }
        };
        if !written(fixture, &mut tx, name).await? {
            fixture.rollback(tx).await;
            continue;
        }
        match fixture.transactions().commit(tx, &completion(&id, version)).await {
            Ok(()) => return Ok(true),
            Err(fault) => may_try_again(&fault)?,
        }
    }
    Err(Wrong(format!("{id:?}: undone again and again for {DEADLINE:?}")))
}

/// Adds to the business; `false` if the database undid the transaction in favour of another.
async fn written<B: Harness>(fixture: &TransactionFixture<B>, tx: &mut Tx<B>, key: &str) -> Checked<bool> {
    match fixture.harness.write(tx, key).await {
        Ok(()) => Ok(true),
        Err(stopped) => {
            let repeat =
                stopped.cause().is_some_and(|cause| fixture.transactions().is_worth_repeating(cause));
            ensure!(repeat, "counter {key}: {stopped}");
            Ok(false)
        }
    }
}

/// Nothing happened, and it was not this transaction's fault.
fn may_try_again(fault: &Fault) -> Checked {
    ensure!(matches!(fault, Fault::Busy | Fault::Undone(_)), "did not commit: {}", said(fault));
    Ok(())
}

/// Threads that all add to one record, each over what it last saw: what was counted is what was committed.
pub(super) async fn no_update_is_lost<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    const ROUNDS: u64 = 6;
    fixture.trial.create(&id("1"), counter(0)).await?;
    let done = threads(&fixture, |fixture, _| async move {
        for _ in 0..ROUNDS {
            add_one(&fixture).await?;
        }
        Ok(ROUNDS)
    })
    .await?;
    let expected: u64 = done.iter().sum();
    let counted = count(&fixture.trial.find(&id("1")).await?.bytes)?;
    ensure!(counted == expected, "{expected} transactions committed, the record counted {counted}");
    fixture.count_is("a", expected).await
}

async fn add_one<B: Harness>(fixture: &TransactionFixture<B>) -> Checked {
    let (id, start) = (id("1"), Instant::now());
    let mut found = fixture.trial.find(&id).await?;
    while start.elapsed() < DEADLINE {
        let next = count(&found.bytes)? + 1;
        let claim = Swap { id: id.clone(), seen: Seen::Version(found.version), new: Some(counter(next - 1)) };
        let (mut tx, version) = match fixture.begin(&claim).await? {
            (tx, Answered::Won(version)) => (tx, version),
            (tx, Answered::Lost(there)) => {
                fixture.rollback(tx).await;
                found = there.ok_or_else(|| Wrong("the record vanished".into()))?;
                continue;
            }
        };
        if written(fixture, &mut tx, "a").await? {
            let done = Swap { id: id.clone(), seen: Seen::Version(version), new: Some(counter(next)) };
            match fixture.transactions().commit(tx, &done).await {
                Ok(()) => return Ok(()),
                Err(fault) => may_try_again(&fault)?,
            }
        } else {
            fixture.rollback(tx).await;
        }
        found = fixture.trial.find(&id).await?;
    }
    Err(Wrong(format!("no turn to add to a counter within {DEADLINE:?}")))
}
