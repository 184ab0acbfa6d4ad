//! Uses a volatile front: answers from it what is sealed, waits on its hints, and writes successes into it.
//!
//! ```text
//! first ask of an intent in this process
//!   front.get ── sealed success, in time ─▶ decide ─▶ replay
//!       │        hint "held" ─▶ wait for its signal, shortly ─▶ the store
//!       └─────── nothing, foreign, too old, slow ─────────────▶ the store
//! ```
//!
//! An entry ends at the latest [`CACHE_AGE_MAX`](super::CACHE_AGE_MAX) after the moment at which the store had it, so one
//! that is written late, or after its receipt was erased, ends no later than what processes keep in memory. All its
//! times are of the store's clock; a process estimates that clock from when it asked for the store's identity, to the
//! side on which entries end early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::answer::Answer;
use super::answer_without_run::{WaitDeadline, answer};
use super::in_flight::Flight;
use super::inner::Inner;
use super::sync::Mutex;
use super::timeout::within;
use crate::ask::Ask;
use crate::decide::Decision;
use crate::front::entry::{self, Entry, NEVER, Success};
use crate::front::{Front, FrontKey, FrontPut, StoreIdentity};
use crate::id::Id;
use crate::outcome::{Outcome, Snapshot, Verdict};
use crate::policy::OnDuplicate;
use crate::receipt::{Done, End, Held, Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Age, Due, Version};
use crate::transition::{self, Finish};

/// How long an ask waits for the front's answer: longer than a healthy one takes, shorter than a commit on most disks.
const GET_MAX: Duration = Duration::from_millis(20);
/// How long a front that was slow or failed is left alone. Then one ask tries it.
const BYPASS: Duration = Duration::from_secs(1);
/// How long an erasure waits for the front.
const REMOVE_MAX: Duration = Duration::from_secs(1);
/// An identity that is older is not believed.
const IDENTITY_AGE_MAX: Duration = Duration::from_secs(10);
/// An identity that is older is read again.
const IDENTITY_REFRESH: Duration = Duration::from_secs(5);
/// Largest body that is put into the front: reading a larger one from the store costs little more.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest wait on a hint before the store was asked, because is not sealed it: as long as the longest pause between
/// two looks at the store.
const HINT_WAIT_MAX: Duration = Duration::from_millis(250);
/// Asks in a row that found nothing in the front, nor in the store what could have been there, before most asks go past it.
const MISSES_MAX: u64 = 256;
/// One in this many asks then looks nevertheless.
const LOOK_ONE_IN: u64 = 8;
/// Longest life of a hint, so that one that is not true any more costs little.
const HINT_AGE_MAX: Duration = Duration::from_secs(1);
/// An entry ends this long before its retention, for jumps of the store's clock.
pub(super) const RETENTION_MARGIN: Duration = Duration::from_secs(1);

/// The front of one engine.
pub(crate) struct EngineFront {
    front: Front,
    age_max: Duration,
    retention_margin: Duration,
    identity: Mutex<Option<Arc<ReadIdentity>>>,
    reading: AtomicBool,
    pub(super) gate: Gate,
    /// Asks in a row that were new: the front could not have answered them.
    new_in_a_row: AtomicU64,
}

/// An identity, and when it was read.
pub(super) struct ReadIdentity {
    pub(super) identity: StoreIdentity,
    epoch: u64,
    /// The store was asked at the one time and had answered at the other, by this process's clock.
    asked_at: Duration,
    read_at: Duration,
}

impl ReadIdentity {
    /// The store's clock at a time of this process, or later than it.
    fn clock_at_most(&self, at: Duration) -> u64 {
        self.identity.now_us.saturating_add(micros(at.saturating_sub(self.asked_at)))
    }

    /// The store's clock at a time of this process, or earlier than it.
    fn clock_at_least(&self, at: Duration) -> u64 {
        let before = micros(self.read_at.saturating_sub(at));
        let since = micros(at.saturating_sub(self.read_at));
        self.identity.now_us.saturating_sub(before).saturating_add(since)
    }
}

impl EngineFront {
    pub(crate) fn new(front: Front, age_max: Duration, retention_margin: Duration) -> Self {
        Self {
            front,
            age_max,
            retention_margin,
            identity: Mutex::new(None),
            reading: AtomicBool::new(false),
            gate: Gate::default(),
            new_in_a_row: AtomicU64::new(0),
        }
    }

    /// Whether a look is likely to be worth its trip. Where nearly all asks are new, it is not, and the store says at the
    /// first one that is not new.
    fn is_worth_a_look(&self) -> bool {
        let new = self.new_in_a_row.load(Ordering::Relaxed);
        new < MISSES_MAX || new.is_multiple_of(LOOK_ONE_IN)
    }

    /// The store, or the front, has said whether an ask is new.
    pub(super) fn learn(&self, is_new: bool) {
        if is_new {
            self.new_in_a_row.fetch_add(1, Ordering::Relaxed);
        } else {
            self.new_in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// The identity of the store, if it was read a short time ago and nothing says that it may be another one.
    pub(super) fn identity(&self, now: Duration) -> Option<Arc<ReadIdentity>> {
        let read = self.identity.lock().clone()?;
        let is_current =
            read.epoch == self.front.identity.epoch() && now.saturating_sub(read.asked_at) < IDENTITY_AGE_MAX;
        is_current.then_some(read)
    }

    /// The identity that entries are sealed with. If it is not the store's any more, they are foreign.
    fn identity_for_put(&self, now: Duration) -> Option<Arc<ReadIdentity>> {
        let read = self.identity.lock().clone()?;
        (now.saturating_sub(read.asked_at) < IDENTITY_AGE_MAX).then_some(read)
    }

    /// Has the identity read, in a task of its own, if it is time to and nobody is at it.
    pub(super) fn refresh(self: &Arc<Self>, runtime: &Arc<dyn Runtime>, now: Duration) {
        let epoch = self.front.identity.epoch();
        let is_fresh =
            self.identity.lock().as_ref().is_some_and(|read| {
                read.epoch == epoch && now.saturating_sub(read.asked_at) < IDENTITY_REFRESH
            });
        if is_fresh || self.reading.swap(true, Ordering::Relaxed) {
            return;
        }
        let (front, runtime_in) = (Arc::clone(self), Arc::clone(runtime));
        runtime.spawn(Box::pin(async move {
            let _reading = ClearOnDrop(&front.reading);
            let asked_at = runtime_in.now();
            // A connection that is opened for this makes it another epoch; the next reading is then of that one.
            let epoch = front.front.identity.epoch();
            match front.front.identity.read().await {
                Ok(identity) => {
                    let read = ReadIdentity { identity, epoch, asked_at, read_at: runtime_in.now() };
                    *front.identity.lock() = Some(Arc::new(read));
                }
                Err(error) => {
                    tracing::warn!(%error, "the identity of the store could not be read; its front is not used");
                    // Not again at once.
                    runtime_in.sleep(BYPASS).await;
                }
            }
        }));
    }

    /// Puts a success that the store has had since `asked_at`.
    pub(crate) fn put(&self, inner: &Inner, id: &Id, receipt: &Receipt, asked_at: Duration) {
        let Status::Done(done) = &receipt.status else { return };
        let End::Outcome(outcome) = &done.end else { return };
        if !is_cacheable(id, outcome) || !self.gate.is_open() {
            return;
        }
        let now = inner.now();
        let Some(read) = self.identity_for_put(now) else { return };
        // Two estimates of the store's clock at that moment; it was not before the earlier one.
        let had_us = (receipt.version.0.saturating_add(micros(receipt.age.updated)))
            .min(read.clock_at_least(asked_at));
        let due_us = match receipt.due {
            Due::Never => NEVER,
            Due::In(remaining) => had_us.saturating_add(micros(remaining)),
            Due::Over(_) => return,
        };
        let ends_us = had_us
            .saturating_add(micros(self.age_max))
            .min(due_us.saturating_sub(micros(self.retention_margin)));
        let ttl = Duration::from_micros(ends_us.saturating_sub(read.clock_at_most(now)));
        if ttl.is_zero() {
            return;
        }
        let status = Status::Done(Done { job: None, ..done.clone() });
        let success = Success { version: receipt.version, ends_us, due_us, status };
        let bytes = read.identity.seal(id, &success);
        let key = read.identity.key_of(id);
        self.front.cache.put(FrontPut { key, bytes, ttl, replace: true });
    }

    /// Puts a hint that an intent is being run in another process.
    pub(crate) fn put_hint(&self, inner: &Inner, id: &Id, due: Due) {
        let Due::In(remaining) = due else { return };
        let now = inner.now();
        let Some(read) = self.identity_for_put(now).filter(|_| self.gate.is_open() && !id.is_step()) else {
            return;
        };
        let lease_ends_us = read.clock_at_least(now).saturating_add(micros(remaining));
        let put = FrontPut {
            key: read.identity.key_of(id),
            bytes: entry::hint(lease_ends_us),
            ttl: remaining.min(HINT_AGE_MAX),
            replace: false,
        };
        self.front.cache.put(put);
    }

    /// Tells those who follow a run in the front that it has ended, and that its end is in the store only.
    pub(crate) fn put_over(&self, inner: &Inner, id: &Id) {
        let Some(read) = self.identity_for_put(inner.now()).filter(|_| self.gate.is_open() && !id.is_step())
        else {
            return;
        };
        let key = read.identity.key_of(id);
        self.front.cache.put(FrontPut { key, bytes: entry::hint(0), ttl: HINT_AGE_MAX, replace: true });
    }

    /// Removes what the front has of an id. If that fails, the entry ends by itself.
    pub(crate) async fn remove(&self, inner: &Inner, id: &Id) {
        if !self.gate.lets_through(inner.now()) {
            not_removed(id, "it has just failed and is left alone for a moment");
            return;
        }
        let removed = within(&*inner.runtime, REMOVE_MAX, async {
            // Also by a process that has used the front for nothing else.
            let key = match self.identity(inner.now()) {
                Some(read) => read.identity.key_of(id),
                None => self.front.identity.read().await?.key_of(id),
            };
            self.front.cache.remove(&key).await
        });
        let why = match removed.await {
            Some(Ok(())) => return self.gate.open(),
            Some(Err(error)) => error.to_string(),
            None => "it did not answer in time".to_owned(),
        };
        self.gate.close(inner.now());
        not_removed(id, &why);
    }

    /// What the front says to an ask.
    pub(super) async fn view(
        &self,
        inner: &Inner,
        id: &Id,
        key: &FrontKey,
        read: &ReadIdentity,
    ) -> FrontView {
        let got = within(&*inner.runtime, GET_MAX, self.front.cache.get(key)).await;
        let now = inner.now();
        let Some(Ok(found)) = got else {
            let was_open = self.gate.close(now);
            if let (Some(Err(error)), true) = (got, was_open) {
                tracing::warn!(%error, "the front failed; the store is used without it until it works again");
            }
            return FrontView::Bypassed;
        };
        self.gate.open();
        let Some(bytes) = found else { return FrontView::Miss };
        match read.identity.open(id, &bytes) {
            Entry::Foreign => FrontView::BadSeal,
            Entry::Hint { lease_ends_us } => {
                let left = Duration::from_micros(lease_ends_us.saturating_sub(read.clock_at_most(now)));
                FrontView::Hint { bytes, left }
            }
            Entry::Success(success) => self.in_time(success, bytes, read, now),
        }
    }

    fn in_time(&self, success: Success, bytes: Bytes, read: &ReadIdentity, now: Duration) -> FrontView {
        let clock_us = read.clock_at_most(now);
        let fresh = Duration::from_micros(success.ends_us.saturating_sub(clock_us));
        // Longer than any entry lives: the store's clock was set back.
        if fresh.is_zero() || fresh > self.age_max {
            return FrontView::Miss;
        }
        let due = match success.due_us {
            NEVER => Due::Never,
            due_us => Due::In(Duration::from_micros(due_us.saturating_sub(clock_us))),
        };
        let receipt = Receipt { version: success.version, due, age: Age::default(), status: success.status };
        FrontView::Success { receipt: Box::new(receipt), bytes, fresh, now }
    }

    /// Ready when the entry may be another one.
    pub(super) async fn changed(&self, key: &FrontKey, seen: Option<&Bytes>) {
        self.front.cache.changed(key, seen).await;
    }
}

fn not_removed(id: &Id, why: &str) {
    tracing::warn!(?id, why, "an erased answer could not be removed from the front; it expires there");
}

/// Tells all processes that wait for a run that its end is in the store.
pub(crate) fn wake_watchers(inner: &Inner, id: &Id) {
    inner.poller.look_now();
    if let Some(front) = &inner.front {
        front.put_over(inner, id);
    }
}

pub(super) enum FrontView {
    Success { receipt: Box<Receipt>, bytes: Bytes, fresh: Duration, now: Duration },
    Hint { bytes: Bytes, left: Duration },
    Miss,
    BadSeal,
    Bypassed,
}

/// The answer of the front to an ask, and the receipt behind it. `None` means: ask the store. Waits for a moment if the
/// front says that the intent is being run.
pub(crate) async fn answer_from_front(
    inner: &Arc<Inner>,
    ask: &Ask,
    deadline: &mut WaitDeadline,
) -> Option<(Answer, Receipt)> {
    let front = inner.front.as_ref().filter(|_| !ask.id.is_step())?;
    let now = inner.now();
    front.refresh(&inner.runtime, now);
    let counters = &inner.counters;
    let usable = front.identity(now).filter(|_| front.gate.lets_through(now) && front.is_worth_a_look());
    let Some(read) = usable else {
        counters.front_bypasses.one();
        return None;
    };
    let key = read.identity.key_of(&ask.id);
    match front.view(inner, &ask.id, &key, &read).await {
        FrontView::Success { receipt, fresh, now, .. } => {
            front.learn(false);
            match answer_by(inner, ask, &receipt, now + fresh, now) {
                Some(answer) => return Some((answer, *receipt)),
                None => counters.front_misses.one(),
            }
        }
        FrontView::Hint { bytes, left } => {
            front.learn(false);
            counters.front_misses.one();
            wait_on_hint(inner, ask, deadline, &key, &bytes, left).await;
        }
        FrontView::Miss => counters.front_misses.one(),
        FrontView::BadSeal => counters.front_bad_seals.one(),
        FrontView::Bypassed => counters.front_bypasses.one(),
    }
    None
}

/// The answer to an ask by a success of the front, if there is one. Whatever else the rules make of it is for the store to
/// say.
pub(super) fn answer_by(
    inner: &Inner,
    ask: &Ask,
    receipt: &Receipt,
    fresh_until: Duration,
    now: Duration,
) -> Option<Answer> {
    let decision = inner.decide(ask, Some(receipt));
    let said = matches!(decision, Decision::Replay | Decision::Refuse(_));
    let answer = said.then(|| answer(inner, Some(receipt.clone()), decision)).flatten()?;
    inner.counters.front_hits.one();
    inner.cache.keep_until(&ask.id, receipt, now, fresh_until);
    Some(answer)
}

/// Waits for the front's signal that a run has ended, for a short time at most. The store is asked in any case.
async fn wait_on_hint(
    inner: &Inner,
    ask: &Ask,
    deadline: &mut WaitDeadline,
    key: &FrontKey,
    seen: &Bytes,
    left: Duration,
) {
    let OnDuplicate::Wait(at_most) = ask.policy.on_duplicate() else { return };
    let Some(remaining) = deadline.remaining(inner.now(), at_most) else { return };
    let Some(front) = &inner.front else { return };
    let wait = remaining.min(left).min(HINT_WAIT_MAX);
    if !wait.is_zero() {
        inner.counters.front_waits.one();
        within(&*inner.runtime, wait, front.changed(key, Some(seen))).await;
    }
}

/// Puts the ending of a run that was just written as `version`.
pub(crate) fn put_ended(
    inner: &Inner,
    flight: &Flight,
    ending: &Finish,
    version: Version,
    sent_at: Duration,
) {
    let Some(front) = &inner.front else { return };
    if !matches!(ending, Finish::Done(outcome) if is_cacheable(&flight.id, outcome)) {
        front.put_over(inner, &flight.id);
        return;
    }
    let write =
        flight.finish_with(|running| transition::end(&flight.id, &running.held, ending, &flight.policy));
    if let Some(Some(write)) = write {
        let due = write.due_in.map_or(Due::Never, Due::In);
        let receipt = Receipt { version, due, age: Age::default(), status: write.status };
        front.put(inner, &flight.id, &receipt, sent_at);
    }
}

/// Puts the outcome that was committed with the caller's writes, under the version of its claim: that of the record is
/// higher, and not known here.
pub(crate) fn put_committed(
    inner: &Inner,
    flight: &Flight,
    held: &Held,
    ending: &Finish,
    claimed: Version,
    sent_at: Duration,
) {
    let Some(front) = &inner.front else { return };
    if let Some(write) = transition::end(&flight.id, held, ending, &flight.policy) {
        let due = write.due_in.map_or(Due::Never, Due::In);
        let receipt = Receipt { version: claimed, due, age: Age::default(), status: write.status };
        front.put(inner, &flight.id, &receipt, sent_at);
    }
}

/// Whether an outcome may be in the front. Steps may not: a new run of their intent must not find those of a former one,
/// and they are removed from the store only.
fn is_cacheable(id: &Id, outcome: &Outcome) -> bool {
    let is_kept = matches!(outcome.snapshot(), Snapshot::Kept(body) if body.len() <= BODY_BYTES_MAX);
    is_kept && outcome.verdict() == Verdict::Succeeded && !id.is_step()
}

/// Keeps asks away from a front that was slow or failed.
#[derive(Default)]
pub(super) struct Gate {
    closed: AtomicBool,
    /// When the next ask may try it, in microseconds of this process's clock.
    next_try_us: AtomicU64,
}

impl Gate {
    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Whether this ask may use the front: every one while it is healthy, otherwise one in a while.
    pub(super) fn lets_through(&self, now: Duration) -> bool {
        if self.is_open() {
            return true;
        }
        let (now_us, next_us) = (micros(now), self.next_try_us.load(Ordering::Relaxed));
        let later_us = now_us.saturating_add(micros(BYPASS));
        let take = |next_us| {
            self.next_try_us.compare_exchange(next_us, later_us, Ordering::Relaxed, Ordering::Relaxed)
        };
        now_us >= next_us && take(next_us).is_ok()
    }

    /// Closes it, and says whether it was open.
    fn close(&self, now: Duration) -> bool {
        self.next_try_us.store(micros(now + BYPASS), Ordering::Relaxed);
        !self.closed.swap(true, Ordering::Relaxed)
    }

    fn open(&self) {
        if !self.is_open() {
            self.closed.store(false, Ordering::Relaxed);
        }
    }
}

struct ClearOnDrop<'a>(&'a AtomicBool);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
