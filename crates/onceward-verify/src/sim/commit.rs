//! Carries a commit to the simulated server: all of a transaction is written, or nothing.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Error, ErrorKind, Fault as Failure, Id, Swap, Swapped, Version};

use super::executor::{OUTSIDE, lock};
use super::faults::Fault;
use super::history::{EventKind, Tx};
use super::store::{RoundTrip, wrote};
use super::transactions::{
    DEADLOCK, LOOK_MIN, SimTransactions, Staged, StagedRecord, deadlock, lost_to_others, refused, roll_back,
    unlock,
};
use crate::broken::transactions::TransactionFlaw;

/// A commit on its way.
pub(super) struct Commit {
    pub(super) home: SimTransactions,
    pub(super) number: Tx,
    pub(super) staged: Staged,
    pub(super) last: LastWrite,
}

/// How the receipt of a transaction is completed.
pub(super) enum LastWrite {
    /// By this write.
    Completion(Swap),
    /// It was written as it is to be, under this version.
    Before(Id, Version),
}

pub(super) type Tell = tokio::sync::oneshot::Sender<Result<(), Failure>>;

impl Commit {
    /// Carries one commit to the server and its answer back.
    pub(super) async fn carry(mut self, trip: RoundTrip, tell: Tell) {
        let store = Arc::clone(&self.home.store);
        let pause = |duration| store.executor.sleep(OUTSIDE, duration);
        let lost = if self.home.flaw == TransactionFlaw::LostCommitIsNotApplied {
            refused()
        } else {
            Error::new(ErrorKind::Unavailable, "simulated: no answer to the commit").maybe_applied()
        };
        pause(trip.there).await;
        if self.home.flaw == TransactionFlaw::CommitsBusinessFirst {
            self.business_alone();
        }
        match trip.fault {
            Some(Fault::CleanFailure | Fault::Undone | Fault::WriteLost) => {
                roll_back(&store, self.number, &self.staged);
                pause(trip.back).await;
                let _ = tell.send(Err(match trip.fault {
                    Some(Fault::CleanFailure) => Failure::Failed(refused()),
                    Some(Fault::Undone) => Failure::Undone(deadlock()),
                    _ => Failure::Failed(lost),
                }));
            }
            Some(Fault::WriteLate) => {
                let _ = tell.send(Err(Failure::Failed(lost)));
                pause(store.executor.draw(|random| store.habits.long / random.pick(&[16, 4, 2, 1]))).await;
                // Nobody is left to hear of it.
                let _ = self.complete().await;
            }
            fault => {
                let committed = self.complete().await;
                if fault == Some(Fault::ReplyLate) {
                    pause(store.habits.long).await;
                }
                pause(trip.back).await;
                let answer =
                    if fault == Some(Fault::ReplyLost) { Err(Failure::Failed(lost)) } else { committed };
                let _ = tell.send(answer);
            }
        }
    }

    /// Writes the completion and commits: all of it, or nothing.
    async fn complete(&mut self) -> Result<(), Failure> {
        let mut waited = Duration::ZERO;
        let swapped = loop {
            let completion = match &self.last {
                LastWrite::Completion(completion) => completion,
                LastWrite::Before(id, version) => {
                    let forced = self.home.flaw == TransactionFlaw::ConflictIsNoLoss;
                    let record = self.staged.records.get(id);
                    let there =
                        record.is_some_and(|record| record.new.is_some() && record.version == *version);
                    break Some(if forced || there { Swapped::Won(*version) } else { Swapped::Lost(None) });
                }
            };
            match self.home.stage(self.number, &mut self.staged, completion) {
                None if waited < DEADLOCK => {
                    self.home.store.executor.sleep(OUTSIDE, LOOK_MIN).await;
                    waited += LOOK_MIN;
                }
                swapped => break swapped,
            }
        };
        let failed = match swapped {
            Some(Swapped::Won(_)) if self.apply() => return Ok(()),
            Some(Swapped::Won(_)) | None => Failure::Undone(deadlock()),
            Some(_) => Failure::Failed(lost_to_others()),
        };
        roll_back(&self.home.store, self.number, &self.staged);
        Err(failed)
    }

    /// Writes everything, unless something has changed since it was looked at. Says which.
    fn apply(&self) -> bool {
        let Self { home, number, staged, .. } = self;
        let mut state = lock(&home.store.state);
        let now_us = home.store.now_us();
        let forced = home.flaw == TransactionFlaw::CompletesWithoutVersion;
        let is_as_seen = |(id, record): (&Id, &StagedRecord)| state.now.last_version(id) == record.first;
        if !forced && !staged.records.iter().all(is_as_seen) {
            return false;
        }
        let sent_us = home.store.executor.now_us();
        for (id, record) in &staged.records {
            let before = state.now.load(now_us, id);
            if before.is_none() && record.new.is_none() {
                continue;
            }
            // Under the version that was given when it was written: the fence of a receipt can be its version.
            state.now.put(record.at_us, id, record.new.as_ref(), record.version);
            let after = state.now.load(now_us, id);
            let what = wrote(id, record.version.0, before, after, Some(*number), sent_us);
            home.store.recorder.record(home.process, what);
            home.store.changed(id);
        }
        unlock(&mut state, *number, staged);
        let business = staged.business.clone();
        home.store.recorder.record(home.process, EventKind::Committed { tx: *number, business });
        true
    }

    /// The business writes without the receipt.
    fn business_alone(&mut self) {
        let business = std::mem::take(&mut self.staged.business);
        self.home
            .store
            .recorder
            .record(self.home.process, EventKind::Committed { tx: self.number, business });
    }
}
