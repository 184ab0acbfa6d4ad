//! The fixture of a transaction check: an engine, a store and transactions on a fresh database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::{
    Answer, Ask, Completed, Fault, Fingerprint, Id, Join, Onceward, Outcome, Policy, Record, Seen, State,
    Stopped, Swap, Swapped, Transactions, Version,
};

use super::super::trial::{Answered, Checked, DEADLINE, FAR, Trial, Wrong, ensure, id_of, plausible, record};
use super::{Harness, Tx};

/// So short that a check can wait for its end, so long that a database answers within.
pub(super) const SHORT: Duration = Duration::from_millis(100);
/// How much longer than its patience a wait may take: a server looks at its clocks now and then.
pub(super) const SLACK: Duration = Duration::from_secs(5);

/// A harness, and the store of it as the other suite has it.
pub(super) struct TransactionFixture<B> {
    pub(super) harness: Arc<B>,
    pub(super) trial: Trial,
}

impl<B> Clone for TransactionFixture<B> {
    fn clone(&self) -> Self {
        Self { harness: Arc::clone(&self.harness), trial: self.trial.clone() }
    }
}

impl<B: Harness> TransactionFixture<B> {
    pub(super) fn new(harness: B) -> Self {
        let store = harness.store();
        let caps = store.caps();
        Self { harness: Arc::new(harness), trial: Trial { store, caps } }
    }

    pub(super) fn transactions(&self) -> &B::T {
        self.harness.transactions()
    }

    /// Begins with this patience, whatever comes of it.
    pub(super) async fn begin_within(
        &self,
        claim: &Swap,
        patience: Duration,
    ) -> Result<(Tx<B>, Swapped), Fault> {
        self.transactions().begin(claim, Some(FAR), patience).await
    }

    /// Begins where nothing stands in the way for long. One that was undone in favour of another begins
    /// again.
    pub(super) async fn begin(&self, claim: &Swap) -> Checked<(Tx<B>, Answered)> {
        let start = Instant::now();
        loop {
            match self.begin_within(claim, DEADLINE).await {
                Ok((tx, swapped)) => {
                    let answered = plausible(std::slice::from_ref(claim), vec![swapped])?.remove(0);
                    return Ok((tx, answered));
                }
                Err(Fault::Undone(_)) if start.elapsed() < DEADLINE => {}
                Err(fault) => {
                    return Err(Wrong(format!("{:?}: did not begin: {}", claim.id, said(&fault))));
                }
            }
        }
    }

    /// Begins with a claim that must win.
    pub(super) async fn win(&self, claim: &Swap) -> Checked<(Tx<B>, Version)> {
        match self.begin(claim).await? {
            (tx, Answered::Won(version)) => Ok((tx, version)),
            (tx, Answered::Lost(found)) => {
                self.rollback(tx).await;
                Err(Wrong(format!("{:?}: the claim over {:?} lost to {found:?}", claim.id, claim.seen)))
            }
        }
    }

    /// Begins with a claim of a place where nothing is.
    pub(super) async fn claim(&self, id: &Id) -> Checked<(Tx<B>, Version)> {
        self.win(&claim_of(id)).await
    }

    /// Swaps inside a transaction.
    pub(super) async fn swap(&self, tx: &mut Tx<B>, batch: &[Swap]) -> Checked<Vec<Answered>> {
        plausible(batch, tx.swap(batch).await?)
    }

    /// Swaps one record inside a transaction.
    pub(super) async fn swap_one(&self, tx: &mut Tx<B>, swap: &Swap) -> Checked<Answered> {
        Ok(self.swap(tx, std::slice::from_ref(swap)).await?.remove(0))
    }

    /// Commits what must be possible.
    pub(super) async fn commit(&self, tx: Tx<B>, completion: &Swap) -> Checked {
        let committed = self.transactions().commit(tx, completion).await;
        committed.map_err(|fault| Wrong(format!("{:?}: did not commit: {}", completion.id, said(&fault))))
    }

    pub(super) async fn rollback(&self, tx: Tx<B>) {
        self.transactions().rollback(tx).await;
    }

    /// Undoes a transaction in one of the two ways there are: every second time by dropping it.
    pub(super) async fn undo(&self, tx: Tx<B>, round: usize) {
        if round.is_multiple_of(2) {
            drop(tx);
        } else {
            self.rollback(tx).await;
        }
    }

    /// Writes to the business.
    pub(super) async fn write(&self, tx: &mut Tx<B>, key: &str) -> Checked {
        self.harness.write(tx, key).await.map_err(|stopped| Wrong(format!("counter {key}: {stopped}")))
    }

    /// Makes sure that the business has this many writes of a key.
    pub(super) async fn count_is(&self, key: &str, expected: u64) -> Checked {
        let count = self.harness.count(key).await;
        let count = count.map_err(|stopped| Wrong(format!("counter {key}: {stopped}")))?;
        ensure!(count == expected, "counter {key} is {count}, and must be {expected}");
        Ok(())
    }

    /// Makes sure that others see nothing.
    pub(super) async fn is_absent(&self, id: &Id, why: &str) -> Checked {
        let found = self.trial.load_one(id).await?;
        ensure!(found.is_none(), "{id:?}: {why}, and others see {found:?}");
        Ok(())
    }

    /// An engine as of a process of its own.
    pub(super) fn engine(&self) -> Checked<Onceward> {
        Ok(Onceward::builder(Arc::clone(&self.trial.store)).accept_volatile().build()?)
    }

    /// Asks an engine for work that adds one to the counter of its key.
    pub(super) async fn transact(&self, engine: &Onceward, ask: Ask) -> Checked<Completed> {
        let key = ask.id().key().to_owned();
        let work = async |_, mut tx: Tx<B>| {
            self.harness.write(&mut tx, &key).await?;
            Ok(Outcome::succeeded("written"))
        };
        ran(engine.transact(self.transactions(), ask, work).await)
    }
}

/// The outcome, where a refusal is wrong.
pub(super) fn ran(answer: onceward::Result<Answer>) -> Checked<Completed> {
    answer?.into_result().map_err(|refusal| Wrong(format!("refused: {refusal}")))
}

/// An ask of its own for every name: duplicates wait, and a lapsed claim is taken over.
pub(super) fn ask(name: &str) -> Ask {
    Ask::new(id(name), Fingerprint::of(b"same"), Arc::new(Policy::http()))
}

/// An id of its own for every name.
pub(super) fn id(name: &str) -> Id {
    id_of("scope", "operation", name)
}

/// A claim as the engine writes it, where nothing is.
pub(super) fn claim_of(id: &Id) -> Swap {
    claim_over(id, Seen::Absent)
}

/// A claim over what was seen.
pub(super) fn claim_over(id: &Id, seen: Seen) -> Swap {
    Swap { id: id.clone(), seen, new: Some(record(State::Held, Some(FAR), "claim")) }
}

/// What a completion puts there.
pub(super) fn done() -> Record {
    record(State::Done, Some(FAR), "completion")
}

/// A completion of the claim with this version.
pub(super) fn completion(id: &Id, version: Version) -> Swap {
    Swap { id: id.clone(), seen: Seen::Version(version), new: Some(done()) }
}

/// A fault in words.
pub(super) fn said(fault: &Fault) -> String {
    format!("{fault:?}")
}

/// An error of the check's own inside work.
pub(super) fn stop(wrong: &Wrong) -> Stopped {
    Stopped::unknown(wrong.0.clone())
}
