//! Broken stores: each wraps a correct store and adds one fault.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use onceward::{
    Applied, Caps, Choose, Due, Error, Filter, Found, Id, Loaded, Page, Result, Scan, ScanTarget, Seen,
    State, Store, StoreFuture, Swap, Swapped, Version, Watch, take_by_scan,
};

use super::records;

/// A flaw of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFlaw {
    /// A claim looks whether the place is free, then writes; two may look before either writes.
    ClaimChecksThenWrites,
    /// A done receipt is written whatever is there.
    CompletesWithoutVersion,
    /// A record is removed whatever is there.
    RemovesWithoutVersion,
    /// A held receipt over a held one is written by its key alone, so that a previous owner renews too.
    RenewsByKeyAlone,
    /// A held receipt over a held one is acknowledged and not written.
    PretendsToRenew,
    /// Versions start at 1 again when a record is re-created.
    FenceRestarts,
    /// A loser is told what was there when its id was first created.
    LoserToldTheFirst,
    /// A loser is told that nothing is there.
    LoserToldNothing,
    /// The answers of a batch come winners first.
    AnswersWinnersFirst,
    /// A reply that was lost is reported as a write that did not happen.
    LostReplyIsNotApplied,
    /// Reads come from a copy that is only filled once per id.
    LoadsFromCopy,
    /// A record that falls due vanishes by itself, as with a time-to-live.
    DueVanishes,
    /// The due time is stamped when a record is created and not again.
    DueStampedOnce,
    /// A page leaves out its last record and continues behind it.
    ScanSkips,
    /// A page begins with the last record of the page before.
    ScanRepeats,
    /// What is not due yet is given out as due.
    ScanIgnoresDue,
    /// It says that it makes batches itself, and forgets the swap of a caller that went away.
    GathersOnlyWhileAsked,
    /// Held records are given out as due before their lease ends.
    ListsHeldAsDue,
    /// Waiting records are given out as due before their time.
    ListsWaitingAsDue,
    /// All records of a scan come with the input of one of them.
    MixesUpInputs,
    /// Each try is written as the first one.
    CountsNoTries,
    /// An input that replaces another one is cut off.
    CutsReplacedInputs,
    /// A receipt that waits after an unknown outcome is removed.
    UnknownOutcomeFreesTheKey,
    /// An outcome that comes after the end of its lease is turned away.
    RefusesLateOutcomes,
    /// No record ends with its writer.
    LeasesOutliveTheirWriters,
    /// Every lease ends with its writer.
    TicketsEndWithTheirWriters,
    /// What is enqueued replaces what waits.
    EnqueueReplaces,
}

impl StoreFlaw {
    /// All that a store can have by itself. (What it lists as due is a flaw of workers.)
    pub const ALL: [Self; 25] = [
        Self::ClaimChecksThenWrites,
        Self::CompletesWithoutVersion,
        Self::RemovesWithoutVersion,
        Self::RenewsByKeyAlone,
        Self::PretendsToRenew,
        Self::FenceRestarts,
        Self::LoserToldTheFirst,
        Self::LoserToldNothing,
        Self::AnswersWinnersFirst,
        Self::LostReplyIsNotApplied,
        Self::LoadsFromCopy,
        Self::DueVanishes,
        Self::DueStampedOnce,
        Self::ScanSkips,
        Self::ScanRepeats,
        Self::ScanIgnoresDue,
        Self::GathersOnlyWhileAsked,
        Self::MixesUpInputs,
        Self::CountsNoTries,
        Self::CutsReplacedInputs,
        Self::UnknownOutcomeFreesTheKey,
        Self::RefusesLateOutcomes,
        Self::LeasesOutliveTheirWriters,
        Self::TicketsEndWithTheirWriters,
        Self::EnqueueReplaces,
    ];

    /// What a store with this flaw says of itself, if it says `right` without it.
    pub fn caps(self, right: Caps) -> Caps {
        let batches_internally = right.hints.batches_internally || self == Self::GathersOnlyWhileAsked;
        right.with_hints(right.hints.with_batches_internally(batches_internally))
    }
}

/// Longer ago than any pause before somebody continues with what was left.
const LONG_AGO: std::time::Duration = std::time::Duration::from_hours(1);

/// What a flaw remembers. One for all handles of one store: a broken server is broken for everybody.
#[derive(Debug, Default)]
pub struct Memory {
    /// The version that counts as 0, by id.
    base: BTreeMap<Id, u64>,
    /// What an id had first.
    first: BTreeMap<Id, Found>,
    /// The input that was read last.
    input: Option<bytes::Bytes>,
}

/// A store with one flaw.
pub struct BrokenStore {
    inner: Arc<dyn Store>,
    flaw: StoreFlaw,
    memory: Arc<Mutex<Memory>>,
}

impl BrokenStore {
    /// Breaks one handle of a store; the handles of one store share their memory.
    pub fn wrap(inner: Arc<dyn Store>, flaw: StoreFlaw, memory: &Arc<Mutex<Memory>>) -> Arc<dyn Store> {
        Arc::new(Self { inner, flaw, memory: Arc::clone(memory) })
    }

    fn remember<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        work(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn load_one(&self, id: &Id) -> Result<Option<Found>> {
        self.inner.load(std::slice::from_ref(id)).await?.remove(0)
    }

    async fn swap_one(&self, swap: Swap) -> Result<Swapped> {
        Ok(self.inner.swap(&[swap]).await?.remove(0))
    }

    /// Writes whatever is there.
    async fn force(&self, swap: &Swap) -> Result<Swapped> {
        loop {
            let seen =
                self.load_one(&swap.id).await?.map_or(Seen::Absent, |found| Seen::Version(found.version));
            if let Swapped::Won(version) = self.swap_one(Swap { seen, ..swap.clone() }).await? {
                return Ok(Swapped::Won(version));
            }
        }
    }

    async fn broken_swap(&self, swap: &Swap) -> Result<Swapped> {
        if let Some(changed) = records::changed(self.flaw, swap) {
            return self.swap_one(changed).await;
        }
        let state = swap.new.as_ref().map(|new| new.state);
        let creates = swap.seen == Seen::Absent;
        match self.flaw {
            StoreFlaw::ClaimChecksThenWrites if creates => {
                if let Some(found) = self.load_one(&swap.id).await? {
                    return Ok(Swapped::Lost(Some(found)));
                }
                give_way().await;
                self.force(swap).await
            }
            StoreFlaw::CompletesWithoutVersion if !creates && state == Some(State::Done) => {
                self.force(swap).await
            }
            StoreFlaw::RemovesWithoutVersion if !creates && state.is_none() => self.force(swap).await,
            StoreFlaw::RenewsByKeyAlone | StoreFlaw::PretendsToRenew
                if !creates && state == Some(State::Held) =>
            {
                match (self.load_one(&swap.id).await?, swap.seen) {
                    (Some(found), _)
                        if found.state == State::Held && self.flaw == StoreFlaw::RenewsByKeyAlone =>
                    {
                        self.force(swap).await
                    }
                    (Some(found), Seen::Version(seen))
                        if found.state == State::Held && found.version == seen =>
                    {
                        Ok(Swapped::Won(Version(seen.0 + 1)))
                    }
                    _ => self.swap_one(swap.clone()).await,
                }
            }
            StoreFlaw::DueStampedOnce => {
                let mut swap = swap.clone();
                if let (Some(new), Some(found)) = (&mut swap.new, self.load_one(&swap.id).await?) {
                    match found.due {
                        Due::In(left) if new.due_in.is_some() => new.due_in = Some(left),
                        Due::Over(_) if new.due_in.is_some() => new.due_in = Some(std::time::Duration::ZERO),
                        _ => {}
                    }
                }
                self.swap_one(swap).await
            }
            StoreFlaw::DueVanishes => {
                self.vanish(&swap.id).await?;
                self.swap_one(swap.clone()).await
            }
            StoreFlaw::RefusesLateOutcomes if !creates && state == Some(State::Done) => {
                match self.load_one(&swap.id).await? {
                    Some(found) if found.state == State::Unknown || found.due.is_over() => {
                        Ok(Swapped::Lost(None))
                    }
                    _ => self.swap_one(swap.clone()).await,
                }
            }
            StoreFlaw::EnqueueReplaces if creates && state == Some(State::Waiting) => {
                match self.load_one(&swap.id).await? {
                    Some(found) if found.state == State::Waiting => {
                        self.swap_one(Swap { seen: Seen::Version(found.version), ..swap.clone() }).await
                    }
                    _ => self.swap_one(swap.clone()).await,
                }
            }
            StoreFlaw::FenceRestarts => self.swap_restarting(swap).await,
            StoreFlaw::LoserToldNothing | StoreFlaw::LoserToldTheFirst => {
                let answer = self.swap_one(swap.clone()).await?;
                Ok(match answer {
                    Swapped::Lost(_) if self.flaw == StoreFlaw::LoserToldNothing => Swapped::Lost(None),
                    Swapped::Lost(Some(found)) => Swapped::Lost(Some(
                        self.remember(|memory| memory.first.entry(swap.id.clone()).or_insert(found).clone()),
                    )),
                    other => other,
                })
            }
            _ => self.swap_one(swap.clone()).await,
        }
    }

    /// Removes a record that is over, as if it had never been.
    async fn vanish(&self, id: &Id) -> Result<()> {
        if let Some(found) = self.load_one(id).await?.filter(|found| found.due.is_over()) {
            self.swap_one(Swap { id: id.clone(), seen: Seen::Version(found.version), new: None }).await?;
        }
        Ok(())
    }

    /// Versions count from the record's creation.
    async fn swap_restarting(&self, swap: &Swap) -> Result<Swapped> {
        let base = self.remember(|memory| memory.base.get(&swap.id).copied().unwrap_or_default());
        let seen = match swap.seen {
            Seen::Absent => Seen::Absent,
            Seen::Version(version) => Seen::Version(Version(version.0.saturating_add(base))),
        };
        let answer = self.swap_one(Swap { seen, ..swap.clone() }).await?;
        let base = match &answer {
            Swapped::Won(version) if seen == Seen::Absent => {
                self.remember(|memory| memory.base.insert(swap.id.clone(), version.0 - 1));
                version.0 - 1
            }
            _ => base,
        };
        Ok(match answer {
            Swapped::Won(version) => Swapped::Won(Version(version.0 - base)),
            Swapped::Lost(found) => Swapped::Lost(found.map(|found| self.counted(&swap.id, found))),
            Swapped::Failed(error) => Swapped::Failed(error),
        })
    }

    /// What has a due time at all, due or not.
    async fn scan_all(&self, query: &Scan, state: Option<State>) -> Result<Page> {
        let of = ScanTarget::Matching(Filter::default().with_state(state));
        let mut page = self.inner.scan(&query.clone().with_target(of)).await?;
        page.found.retain(|(_, found)| found.due != Due::Never);
        Ok(page)
    }

    fn counted(&self, id: &Id, mut found: Found) -> Found {
        let base = self.remember(|memory| memory.base.get(id).copied().unwrap_or_default());
        found.version = Version(found.version.0.saturating_sub(base));
        found
    }
}

impl Store for BrokenStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            match self.flaw {
                StoreFlaw::AnswersWinnersFirst => {
                    let mut answers = self.inner.swap(batch).await?;
                    answers.sort_by_key(|answer| !matches!(answer, Swapped::Won(_)));
                    Ok(answers)
                }
                StoreFlaw::LostReplyIsNotApplied => self.inner.swap(batch).await.map_err(not_applied),
                StoreFlaw::GathersOnlyWhileAsked => {
                    give_way().await;
                    self.inner.swap(batch).await
                }
                StoreFlaw::LoadsFromCopy
                | StoreFlaw::ScanSkips
                | StoreFlaw::ScanRepeats
                | StoreFlaw::ScanIgnoresDue => self.inner.swap(batch).await,
                _ => {
                    let mut answers = Vec::with_capacity(batch.len());
                    for swap in batch {
                        answers.push(self.broken_swap(swap).await?);
                    }
                    Ok(answers)
                }
            }
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            if self.flaw == StoreFlaw::DueVanishes {
                for id in ids {
                    self.vanish(id).await?;
                }
            }
            let mut answers = self.inner.load(ids).await?;
            for (id, answer) in ids.iter().zip(&mut answers) {
                let Ok(Some(found)) = answer else { continue };
                match self.flaw {
                    StoreFlaw::LoadsFromCopy => {
                        let first = |memory: &mut Memory| {
                            memory.first.entry(id.clone()).or_insert_with(|| found.clone()).clone()
                        };
                        *found = self.remember(first);
                    }
                    StoreFlaw::FenceRestarts => *found = self.counted(id, found.clone()),
                    _ => {}
                }
            }
            Ok(answers)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let mut page = match (self.flaw, &query.target) {
                (StoreFlaw::ScanIgnoresDue, ScanTarget::Due(state)) => self.scan_all(query, *state).await?,
                (StoreFlaw::ListsHeldAsDue, ScanTarget::Due(Some(State::Held)))
                | (StoreFlaw::ListsWaitingAsDue, ScanTarget::Due(Some(State::Waiting))) => {
                    let ScanTarget::Due(state) = query.target else { unreachable!("matched above") };
                    let mut page = self.scan_all(query, state).await?;
                    page.found.iter_mut().for_each(|(_, found)| found.due = Due::Over(LONG_AGO));
                    page
                }
                _ => self.inner.scan(query).await?,
            };
            match self.flaw {
                StoreFlaw::ScanSkips if page.next.is_some() => drop(page.found.pop()),
                StoreFlaw::ScanRepeats if query.limit > 1 => {
                    let back = query.clone().with_limit(query.limit - 1);
                    page.next = page.next.and(self.inner.scan(&back).await?.next);
                }
                StoreFlaw::FenceRestarts => {
                    for (id, found) in &mut page.found {
                        *found = self.counted(id, found.clone());
                    }
                }
                StoreFlaw::MixesUpInputs => {
                    for (_, found) in &mut page.found {
                        self.remember(|memory| records::mix_up(found, &mut memory.input));
                    }
                }
                _ => {}
            }
            Ok(page)
        })
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
        self.flaw.caps(self.inner.caps())
    }
}

fn not_applied(error: Error) -> Error {
    match error.applied() {
        Applied::No => error,
        Applied::Maybe => Error::new(error.kind(), "not written"),
    }
}

/// Lets everybody else go first, once.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
