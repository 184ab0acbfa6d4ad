//! Broken callers: mistakes that an engine cannot prevent, and that the checker must still find.

use std::collections::BTreeMap;
use std::sync::Mutex;

use onceward::{Answer, Attempt, Completed, Fingerprint, Id, Recorded};

use crate::sim::executor::{Process, lock};

/// A flaw of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerFlaw {
    /// Nothing.
    None,
    /// Its fingerprint says nothing of what it asks for.
    FingerprintOfNothing,
    /// Its fingerprint says when it asks, too, so that its own retry looks like another request.
    FingerprintOfTheMoment,
    /// It asks for everything under one key.
    OneKeyForAll,
    /// It works without a claim when the store cannot be reached.
    RunsWhenStoreFails,
    /// It waits for another's run by looking, and works without a claim once the record is gone.
    RunsWhenRecordVanishes,
    /// Its work continues by itself when the run it belongs to is dropped.
    DetachesItsWork,
    /// It says that nothing happened when it does not know.
    SaysNothingHappened,
    /// It takes an ending that came too late for one that was recorded.
    TakesTooLateForRecorded,
    /// It keeps the answers it was given, and for good.
    KeepsAnswersForGood,
    /// It gives every try the same attempt.
    NamesEveryAttemptAlike,
    /// It says that something is enqueued before the transaction commits that enqueues it.
    SaysEnqueuedBeforeTheCommit,
}

impl CallerFlaw {
    /// The digest under which it asks. The first byte says what is asked for, truly or not.
    pub(crate) fn fingerprint(self, number: u8, call: u32) -> Fingerprint {
        let mut digest = [number; Fingerprint::DIGEST_BYTES];
        match self {
            Self::FingerprintOfNothing => digest = [0; Fingerprint::DIGEST_BYTES],
            Self::FingerprintOfTheMoment => digest[1..5].copy_from_slice(&call.to_be_bytes()),
            _ => {}
        }
        Fingerprint::new(1, digest)
    }

    /// The name it gives to a try, if it would have given `named`.
    pub(crate) fn attempt(self, named: Option<Attempt>) -> Option<Attempt> {
        if self == Self::NamesEveryAttemptAlike { Some(Attempt(7)) } else { named }
    }

    /// The id under which it asks.
    pub(crate) fn id(self, id: &Id) -> Id {
        match self {
            Self::OneKeyForAll => Id::new(id.scope(), id.operation(), "A").expect("a right id"),
            _ => id.clone(),
        }
    }
}

/// Answers that a caller keeps beside the engine, by process, intent and what was asked.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    kept: Mutex<BTreeMap<(Process, Id, u8), Completed>>,
}

impl Answers {
    pub(crate) fn keep(&self, process: Process, id: &Id, fingerprint: u8, answer: Option<&Answer>) {
        if let Some(Answer::Completed(ran)) = answer
            && ran.recorded == Recorded::Yes
        {
            lock(&self.kept).insert((process, id.clone(), fingerprint), ran.clone());
        }
    }

    pub(crate) fn load(&self, process: Process, id: &Id, fingerprint: u8) -> Option<Answer> {
        let mut ran = lock(&self.kept).get(&(process, id.clone(), fingerprint)).cloned()?;
        ran.replayed = true;
        Some(Answer::Completed(ran))
    }
}
