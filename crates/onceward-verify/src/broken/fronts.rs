//! Broken uses of a volatile front: engines that trust it, made outside of the engine with the same effect.

use bytes::Bytes;
use onceward::front_entry::{Entry, Success};
use onceward::{
    Answer, Caps, Choose, Due, FrontKey, Id, Loaded, Page, Refusal, Scan, State, Store, StoreFuture, Swap,
    Swapped, Watch, codec, take_by_scan,
};
use std::sync::Arc;

use crate::sim::front::SimFront;

/// A flaw of the use of a front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontFlaw {
    /// Nothing.
    None,
    /// Whatever is found under a key is taken for its receipt: as if entries of other ids were sealed for it.
    TrustsWhatIsThere,
    /// What the front does not have counts as never done, and is run.
    RunsWhatIsNotThere,
    /// A hint that an intent is being run is taken for an answer.
    BelievesHints,
    /// An outcome is put there before it is committed.
    PutsBeforeTheCommit,
    /// What is there is used however old it is: as if its end were always a moment ahead.
    KeepsWhatIsOld,
}

impl FrontFlaw {
    /// The answer of a front with this flaw.
    pub(crate) fn answer(
        self,
        front: &SimFront,
        ids: &[Id],
        key: &FrontKey,
        answer: Option<Bytes>,
    ) -> Option<Bytes> {
        let identity = front.identity();
        let id = ids.iter().find(|id| identity.key_of(id) == *key);
        let (Some(id), Some(bytes)) = (id, &answer) else { return answer };
        let found = match self {
            Self::TrustsWhatIsThere => ids.iter().find_map(|of| match identity.open(of, bytes) {
                Entry::Success(success) => Some(success),
                _ => None,
            }),
            Self::KeepsWhatIsOld => match identity.open(id, bytes) {
                Entry::Success(success) => Some(Success { ends_us: identity.now_us + 15_000, ..success }),
                _ => None,
            },
            _ => None,
        };
        found.map_or(answer.clone(), |success| Some(identity.seal(id, &success)))
    }

    /// What a caller makes of the front before it asks.
    pub(crate) fn instead_of_asking(self, front: &SimFront, id: &Id) -> Instead {
        let there = front.peek(id);
        match (self, there.map(|bytes| front.identity().open(id, &bytes))) {
            (Self::RunsWhatIsNotThere, None) => Instead::Run,
            (Self::BelievesHints, Some(Entry::Hint { lease_ends_us })) => {
                let left = lease_ends_us.saturating_sub(front.identity().now_us);
                let retry_after = std::time::Duration::from_micros(left);
                Instead::Answer(Answer::Refused(Refusal::InProgress { retry_after }))
            }
            _ => Instead::Ask,
        }
    }
}

/// What a caller does.
pub(crate) enum Instead {
    Ask,
    Run,
    Answer(Answer),
}

/// A store whose outcomes are put into the front before they are written.
pub(crate) struct EarlyStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) front: Arc<SimFront>,
}

impl EarlyStore {
    fn put(&self, swap: &Swap) {
        let Some(record) = swap.new.as_ref().filter(|record| record.state == State::Done) else { return };
        let identity = self.front.identity();
        let due = record.due_in.map_or(Due::Never, Due::In);
        let version = onceward::Version(identity.now_us);
        let found =
            onceward::Found::new(version, State::Done, due, onceward::Age::default(), record.bytes.clone());
        let Ok(receipt) = codec::decode(&found) else { return };
        let age_us = 15_000;
        let due_us = record.due_in.map_or(u64::MAX, |due_in| {
            identity.now_us.saturating_add(u64::try_from(due_in.as_micros()).unwrap_or(u64::MAX))
        });
        let ends_us = (identity.now_us + age_us).min(due_us);
        let success = Success { version, ends_us, due_us, status: receipt.status };
        self.front.write(identity.key_of(&swap.id), identity.seal(&swap.id, &success));
    }
}

impl Store for EarlyStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        batch.iter().filter(|swap| !swap.id.is_step()).for_each(|swap| self.put(swap));
        self.inner.swap(batch)
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.inner.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        take_by_scan(self, state, limit, choose)
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}
