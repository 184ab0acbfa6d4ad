//! The fixture of a store check: a fresh store, short methods to use it, and the error of a failed check.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onceward::{
    Caps, Due, Filter, Found, Id, Page, Record, Scan, ScanTarget, Seen, State, Store, Swap, Swapped, Version,
};

/// How long anything that must happen may take before it counts as never. Generous: a check that waits
/// this long has failed, so only failures are slow.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);
/// Due in so far a future that it cannot come while a check runs.
pub(super) const FAR: Duration = Duration::from_hours(1);
/// Between two looks at something that is about to happen.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A flaw of a store, in one sentence.
#[derive(Debug)]
pub(super) struct Wrong(pub(super) String);

/// What a check returns.
pub(super) type Checked<T = ()> = Result<T, Wrong>;

impl From<onceward::Error> for Wrong {
    fn from(error: onceward::Error) -> Self {
        Self(format!("the store failed: {error:?}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails the check with a sentence unless the condition holds. A value rather than a panic, so that one
/// run can report every check that fails, and broken stores can be tried without noise.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err($crate::conformance::trial::Wrong(format!($($sentence)+)));
        }
    };
}
pub(super) use ensure;

/// What became of a swap that the store has no reason to fail.
#[derive(Clone, Debug)]
pub(super) enum Answered {
    /// As [`Swapped::Won`].
    Won(Version),
    /// As [`Swapped::Lost`].
    Lost(Option<Found>),
}

/// One check's own store.
#[derive(Clone)]
pub(super) struct Trial {
    pub(super) store: Arc<dyn Store>,
    /// What was announced for the store.
    pub(super) caps: Caps,
}

impl Trial {
    /// Swaps a batch and makes sure that the answers can be about that batch at all.
    pub(super) async fn swap(&self, batch: &[Swap]) -> Checked<Vec<Answered>> {
        plausible(batch, self.store.swap(batch).await?)
    }

    /// Swaps one record.
    pub(super) async fn swap_one(&self, id: &Id, seen: Seen, new: Option<Record>) -> Checked<Answered> {
        let batch = [Swap { id: id.clone(), seen, new }];
        Ok(self.swap(&batch).await?.remove(0))
    }

    /// Puts a record where it must be possible.
    pub(super) async fn put(&self, id: &Id, seen: Seen, new: Record) -> Checked<Version> {
        match self.swap_one(id, seen, Some(new)).await? {
            Answered::Won(version) => Ok(version),
            Answered::Lost(found) => Err(Wrong(format!("{id:?}: put over {seen:?} lost to {found:?}"))),
        }
    }

    /// Creates a record where nothing is.
    pub(super) async fn create(&self, id: &Id, new: Record) -> Checked<Version> {
        self.put(id, Seen::Absent, new).await
    }

    /// Removes a record that must be there in that version.
    pub(super) async fn remove(&self, id: &Id, version: Version) -> Checked {
        match self.swap_one(id, Seen::Version(version), None).await? {
            Answered::Won(_) => Ok(()),
            Answered::Lost(found) => {
                Err(Wrong(format!("{id:?}: removal over {version:?} lost to {found:?}")))
            }
        }
    }

    /// Tries a swap that must lose and gives what the loser learned.
    pub(super) async fn lose(&self, id: &Id, seen: Seen, new: Option<Record>) -> Checked<Option<Found>> {
        match self.swap_one(id, seen, new).await? {
            Answered::Lost(found) => Ok(found),
            Answered::Won(version) => {
                Err(Wrong(format!("{id:?}: a swap that saw {seen:?} won with {version:?} and must not")))
            }
        }
    }

    /// Loads records and makes sure that there is one answer for each.
    pub(super) async fn load(&self, ids: &[Id]) -> Checked<Vec<Option<Found>>> {
        let loaded = self.store.load(ids).await?;
        ensure!(loaded.len() == ids.len(), "a load of {} ids got {} answers", ids.len(), loaded.len());
        let found = ids.iter().zip(loaded).map(|(id, loaded)| {
            loaded.map_err(|error| Wrong(format!("{id:?}: a record that is sound cannot be read: {error:?}")))
        });
        found.collect()
    }

    /// Loads one record, which may be absent.
    pub(super) async fn load_one(&self, id: &Id) -> Checked<Option<Found>> {
        Ok(self.load(std::slice::from_ref(id)).await?.remove(0))
    }

    /// Loads one record that must be there.
    pub(super) async fn find(&self, id: &Id) -> Checked<Found> {
        self.load_one(id)
            .await?
            .ok_or_else(|| Wrong(format!("{id:?}: nothing is there, a record was written")))
    }

    /// Loads one record that must be there exactly as it was written.
    pub(super) async fn find_as(&self, id: &Id, version: Version, record: &Record) -> Checked<Found> {
        let found = self.find(id).await?;
        same(id, &found, version, record)?;
        Ok(found)
    }

    /// Waits, by looking, until a record has fallen due. No sleep is trusted to be long enough.
    pub(super) async fn until_over(&self, id: &Id) -> Checked<Duration> {
        let start = Instant::now();
        loop {
            if let Due::Over(since) = self.find(id).await?.due {
                return Ok(since);
            }
            ensure!(start.elapsed() < DEADLINE, "{id:?}: still not over after {:?}", start.elapsed());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Reads one page and makes sure that it keeps to its limit.
    pub(super) async fn page(&self, query: &Scan) -> Checked<Page> {
        let page = self.store.scan(query).await?;
        ensure!(
            page.found.len() <= query.limit,
            "a page of at most {} holds {} records",
            query.limit,
            page.found.len()
        );
        if let Some((id, error)) = page.unreadable.first() {
            return Err(Wrong(format!("{id:?}: a record that is sound cannot be read: {error:?}")));
        }
        Ok(page)
    }

    /// Reads all pages. `pages_max` is what a store that makes progress cannot need.
    pub(super) async fn pages(
        &self,
        of: ScanTarget,
        limit: usize,
        pages_max: usize,
    ) -> Checked<Vec<(Id, Found)>> {
        let mut query = Scan::new(of, limit);
        let mut found = Vec::new();
        for _ in 0..pages_max {
            let page = self.page(&query).await?;
            found.extend(page.found);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(found),
            }
        }
        Err(Wrong(format!("{:?} with limit {limit} did not end after {pages_max} pages", query.target)))
    }
}

/// Makes sure that answers can be about this batch: one for each swap, each in keeping with what the swap
/// saw.
pub(super) fn plausible(batch: &[Swap], answers: Vec<Swapped>) -> Checked<Vec<Answered>> {
    ensure!(answers.len() == batch.len(), "a batch of {} swaps got {} answers", batch.len(), answers.len());
    let mut answered = Vec::with_capacity(answers.len());
    for (swap, answer) in batch.iter().zip(answers) {
        let id = &swap.id;
        answered.push(match (swap.seen, answer) {
            (_, Swapped::Failed(error)) => {
                return Err(Wrong(format!("{id:?}: a swap failed for no reason: {error:?}")));
            }
            (Seen::Absent, Swapped::Lost(None)) => {
                return Err(Wrong(format!("{id:?}: lost to a record, but nothing is there")));
            }
            (Seen::Absent, Swapped::Lost(found)) => Answered::Lost(found),
            (Seen::Version(seen), Swapped::Lost(found)) => {
                let there = found.as_ref().map(|found| found.version);
                ensure!(there != Some(seen), "{id:?}: lost although {seen:?} is there");
                Answered::Lost(found)
            }
            (Seen::Absent, Swapped::Won(version)) => Answered::Won(version),
            (Seen::Version(seen), Swapped::Won(version)) => {
                ensure!(version > seen, "{id:?}: a write over {seen:?} got {version:?}, not above it");
                Answered::Won(version)
            }
        });
    }
    Ok(answered)
}

/// Makes sure that what was found is what was written; the due time is compared elsewhere.
pub(super) fn same(id: &Id, found: &Found, version: Version, record: &Record) -> Checked {
    ensure!(found.version == version, "{id:?}: has {:?}, its last write was told {version:?}", found.version);
    ensure!(found.state == record.state, "{id:?}: is {:?}, written was {:?}", found.state, record.state);
    ensure!(
        found.bytes == record.bytes,
        "{id:?}: other bytes than written ({} against {})",
        found.bytes.len(),
        record.bytes.len()
    );
    Ok(())
}

/// An id of its own for every number, all in one scope and operation.
pub(super) fn id(number: usize) -> Id {
    id_of("scope", "operation", &format!("key-{number:05}"))
}

/// An id of these parts, which are right.
pub(super) fn id_of(scope: &str, operation: &str, key: &str) -> Id {
    Id::new(scope, operation, key).expect("the suite asks for ids within their bounds")
}

/// A held record with a lease that outlives every check.
pub(super) fn held(bytes: impl Into<Bytes>) -> Record {
    record(State::Held, Some(FAR), bytes)
}

/// A record.
pub(super) fn record(state: State, due_in: Option<Duration>, bytes: impl Into<Bytes>) -> Record {
    Record::new(state, bytes.into()).with_due_in(due_in)
}

/// Every record there is.
pub(super) fn everything() -> ScanTarget {
    ScanTarget::Matching(Filter::default())
}

/// A swap that creates.
pub(super) fn creation(id: &Id, new: Record) -> Swap {
    Swap { id: id.clone(), seen: Seen::Absent, new: Some(new) }
}

/// A batch as the seam asks for it: sorted by id.
pub(super) fn sorted(mut batch: Vec<Swap>) -> Vec<Swap> {
    batch.sort_by(|one, other| one.id.cmp(&other.id));
    batch
}

/// These ids, each once, in whatever order.
pub(super) fn once_each(found: &[(Id, Found)], expected: &[Id]) -> Checked {
    let mut found: Vec<&Id> = found.iter().map(|(id, _)| id).collect();
    found.sort();
    let mut expected: Vec<&Id> = expected.iter().collect();
    expected.sort();
    for pair in found.windows(2) {
        ensure!(pair[0] != pair[1], "{:?} came twice", pair[0]);
    }
    for id in &expected {
        ensure!(found.binary_search(id).is_ok(), "{id:?} was skipped");
    }
    ensure!(found.len() == expected.len(), "found {found:?}, expected {expected:?}");
    Ok(())
}
