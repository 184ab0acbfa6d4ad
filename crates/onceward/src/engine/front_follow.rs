//! Follows a run of another process in the front, so that waiting for it needs no looks at the store.
//!
//! ```text
//! the store has said "held" ─▶ look at the front ── a sealed success of this run ──▶ the answer
//!                                  ▲      │
//!        signal, or half a second ─┘      ├─ "over", or a success that does not fit ─▶ one look at the store
//!                                         └─ unusable ─▶ looks at the store at every tick, until it is usable
//! ```
//!
//! While a run is followed, the poller looks at the store rarely, and when the lease ends. So a front that loses a signal
//! or says nothing costs time, never more than that.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::answer::Answer;
use super::front::{EngineFront, FrontView, answer_by};
use super::inner::Inner;
use super::timeout::within;
use crate::ask::Ask;
use crate::front::FrontKey;
use crate::id::Id;
use crate::receipt::Receipt;
use crate::store::{Due, Version};

/// Longest wait for a signal. Then the front is looked at: one that hangs is noticed, and the hint is written again.
const SIGNAL_MAX: Duration = Duration::from_millis(500);
/// The same while there is no entry: the hint that makes others signal may not be written yet.
const HINT_MAX: Duration = Duration::from_millis(20);
/// Shortest and longest pause between two looks at a front that changes without a word of use.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Whether a run can be followed in the front now.
pub(crate) fn can_follow(inner: &Inner, id: &Id) -> bool {
    let now = inner.now();
    let usable = |front: &Arc<EngineFront>| front.gate.is_open() && front.identity(now).is_some();
    !id.is_step() && inner.front.as_ref().is_some_and(usable)
}

/// Ready with the answer once the front has a success of the run that the store has said is held in `version`; never, if it
/// gets none. Has the poller look at the store as often as the front is of no help.
pub(crate) async fn follow_run(inner: &Arc<Inner>, ask: &Ask, version: Version) -> (Answer, Box<Receipt>) {
    let Some(front) = inner.front.as_ref().filter(|_| !ask.id.is_step()) else { return pending().await };
    inner.counters.front_waits.one();
    let mut following = Following { inner, front, ask, version, looked_for: None };
    let mut pause = Duration::ZERO;
    loop {
        let began = inner.now();
        match following.read_front().await {
            Said::Answer(answer, receipt) => return (answer, receipt),
            Said::Unusable => {
                inner.poller.set_followed(&ask.id, false, inner.now());
                inner.runtime.sleep(pause.max(PAUSE_MIN)).await;
            }
            Said::Wait { key, seen, at_most } => {
                inner.poller.set_followed(&ask.id, true, inner.now());
                // A change during the pause is found as soon as the wait begins.
                if !pause.is_zero() {
                    inner.runtime.sleep(pause).await;
                }
                within(&*inner.runtime, at_most, front.changed(&key, seen.as_ref())).await;
            }
        }
        // The next look is at once; it is what follows it that is slowed down.
        let was_short = inner.now().saturating_sub(began) < pause * 2 + PAUSE_MIN;
        pause = if was_short { (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) } else { Duration::ZERO };
    }
}

struct Following<'a> {
    inner: &'a Arc<Inner>,
    front: &'a Arc<EngineFront>,
    ask: &'a Ask,
    /// The version in which the store had the run.
    version: Version,
    /// The entry because of which the store was looked at.
    looked_for: Option<Bytes>,
}

/// What a look at the front comes to.
enum Said {
    Answer(Answer, Box<Receipt>),
    Wait { key: FrontKey, seen: Option<Bytes>, at_most: Duration },
    Unusable,
}

impl Following<'_> {
    async fn read_front(&mut self) -> Said {
        let (inner, front, id) = (self.inner, self.front, &self.ask.id);
        let now = inner.now();
        front.refresh(&inner.runtime, now);
        let Some(read) = front.identity(now).filter(|_| front.gate.lets_through(now)) else {
            return Said::Unusable;
        };
        let key = read.identity.key_of(id);
        let seen = match front.view(inner, id, &key, &read).await {
            FrontView::Success { receipt, bytes, fresh, now } => {
                // One that is not newer is of a former run: the store has said that this one came after it.
                if receipt.version > self.version
                    && let Some(answer) = answer_by(inner, self.ask, &receipt, now + fresh, now)
                {
                    return Said::Answer(answer, receipt);
                }
                self.look_at_store(&bytes);
                Some(bytes)
            }
            FrontView::Hint { bytes, left } => {
                if left.is_zero() {
                    self.look_at_store(&bytes);
                }
                Some(bytes)
            }
            FrontView::Miss => None,
            FrontView::BadSeal | FrontView::Bypassed => return Said::Unusable,
        };
        if seen.is_none()
            && let Some(left) = inner.poller.lease_left(id, inner.now()).filter(|left| !left.is_zero())
        {
            front.put_hint(inner, id, Due::In(left));
        }
        let at_most = if seen.is_some() { SIGNAL_MAX } else { HINT_MAX };
        Said::Wait { key, seen, at_most }
    }

    /// The entry says that the run may be over: the store is asked, once for each such entry.
    fn look_at_store(&mut self, bytes: &Bytes) {
        if self.looked_for.as_ref() != Some(bytes) {
            self.looked_for = Some(bytes.clone());
            self.inner.poller.look_at(&self.ask.id);
        }
    }
}
