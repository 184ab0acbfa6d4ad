//! What follows the end of a try: it is counted, its position moves on, or it is tried again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward_stores::sql::SqlTransactions;
use tokio::time::Instant;

use super::{Attempt, Ended, OpenPart, Queued, Run};
use crate::consumer::effect::{End, Item, Origin};
use crate::lane::lane_of;
use crate::source::HandledMessage;

/// That the order was lost is said at most this often; a broker that does so does it many times.
const ORDER_WARNING_EVERY: Duration = Duration::from_secs(60);

/// The messages of one ordering key that were in one transaction.
struct EndedLine {
    key: Arc<str>,
    /// To be tried again, in their order.
    back: Vec<Queued>,
    until: Option<Instant>,
    /// To be tried again behind later ones.
    aside: Option<(Queued, Instant)>,
    is_retry: bool,
}

/// When a message is tried again.
#[derive(Clone, Copy)]
enum Again {
    /// As the next one of its key.
    Next,
    /// As the next one of its key, at this time.
    At(Instant),
    /// At this time; later ones of its key may go ahead.
    Behind(Instant),
}

impl Again {
    fn at(self) -> Option<Instant> {
        match self {
            Self::Next => None,
            Self::At(until) | Self::Behind(until) => Some(until),
        }
    }
}

impl<T, A, F> Run<'_, T, A, F>
where
    T: SqlTransactions,
    A: Fn(Attempt) -> F,
    F: Future<Output = Vec<Ended>>,
{
    /// What was in one transaction has ended: each of it, and then the lines that it came from.
    pub(super) fn ended(&mut self, batch: Vec<Ended>) {
        let mut lines: Vec<EndedLine> = Vec::new();
        for (key, queued, end) in batch {
            let at = lines.iter().position(|line| line.key == key).unwrap_or_else(|| {
                let is_retry = matches!(queued.item.origin, Origin::DeadLetter { .. });
                lines.push(EndedLine { key, back: Vec::new(), until: None, aside: None, is_retry });
                lines.len() - 1
            });
            match self.message_ended(queued, &end) {
                // Only one that was tried alone.
                Some((queued, Again::Behind(until))) => lines[at].aside = Some((queued, until)),
                Some((queued, again)) => {
                    lines[at].back.push(queued);
                    lines[at].until = lines[at].until.or(again.at());
                }
                None => {}
            }
        }
        for EndedLine { key, back, until, aside, is_retry } in lines {
            if let Some((queued, until)) = aside {
                self.queue.set_aside(&key, queued, until);
            } else if !back.is_empty() {
                self.queue.put_back(&key, back, until);
            } else if self.queue.done(&key) && is_retry {
                // Its successors, or an arrival that was appended meanwhile.
                self.next_retry_poll = Instant::now();
            }
        }
    }

    /// Counts it. Returns it if it is to be tried again, and when.
    fn message_ended(&mut self, mut queued: Queued, end: &End) -> Option<(Queued, Again)> {
        let counters = &self.consumer.counters;
        self.is_marking &= !queued.item.marks();
        let Item { part, fence, .. } = queued.item;
        let is_ours = |open: &&mut OpenPart| open.fence == fence;
        let is_leaving = self.leaving.get(&part).is_some_and(|open| open.fence == fence);
        let open = if is_leaving { self.leaving.get_mut(&part) } else { self.open.get_mut(&part) };
        let mut open = open.filter(is_ours);
        if let Some(open) = &mut open {
            open.in_flight -= 1;
            open.last_event = Instant::now();
        }
        let count = match end {
            End::Handled => Some(&counters.handled),
            End::Duplicate => Some(&counters.duplicates),
            End::Dead => Some(&counters.dead),
            End::Parked => Some(&counters.parked),
            End::FencedOff => Some(&counters.fenced_off),
            End::TryAgain { .. } | End::Early { .. } | End::SetBehind => Some(&counters.failed),
            End::Alone => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let again = match end {
            End::Alone => Some(Again::Next),
            End::TryAgain { tries, error } | End::Early { tries, error } => {
                let (id, tries) = (queued.item.message.id(), *tries);
                tracing::warn!(
                    consumer = &*self.consumer.name,
                    id,
                    tries,
                    error,
                    "a message was not handled, trying again"
                );
                queued.item.tries = tries;
                queued.failures += 1;
                let backoff = self.consumer.options.backoff;
                let pause = backoff.min.saturating_mul(1 << (queued.failures - 1).min(20)).min(backoff.max);
                let until = Instant::now() + pause;
                Some(if matches!(end, End::Early { .. }) { Again::Behind(until) } else { Again::At(until) })
            }
            _ => None,
        };
        if let Some(again) = again {
            queued.item.was_begun = true;
            if let Some(open) = open.filter(|_| !is_leaving) {
                // Where messages are taken one at a time, what it needs must be read while it waits.
                if matches!(again, Again::Behind(_))
                    && open.suspects_left > 0
                    && open.progress.open() <= self.consumer.options.partition_messages_max
                {
                    queued.permit = None;
                }
                return Some((queued, again));
            }
            self.retrying.remove(queued.item.message.id());
            return None;
        }
        if let (Some(newer), End::Handled | End::Dead | End::Parked) = (queued.newer, end) {
            counters.out_of_order.fetch_add(1, Ordering::Relaxed);
            if self.next_order_warning <= Instant::now() {
                self.next_order_warning = Instant::now() + ORDER_WARNING_EVERY;
                tracing::warn!(
                    consumer = &*self.consumer.name,
                    id = queued.item.message.id(),
                    ordering_key = queued.item.message.ordering_key(),
                    newer,
                    "a message came for the first time behind a newer one of its ordering key: the order was lost before \
                     the consumer (further ones are counted)"
                );
            }
        }
        match queued.item.origin {
            Origin::DeadLetter { .. } => {
                self.retrying.remove(queued.item.message.id());
                if *end == End::Handled {
                    counters.retried.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(open) = open {
                    open.retries -= 1;
                }
            }
            Origin::Source { position } if *end != End::FencedOff => {
                let open = open?;
                open.progress.handled(position);
                open.handled.push(HandledMessage { lane: lane_of(&queued.item.message), position });
                if queued.item.is_suspect && *end != End::Duplicate && open.suspects_left > 0 {
                    open.suspects_left -= 1;
                    if open.suspects_left == 0 {
                        open.clear_suspicion(self.consumer.options.partition_messages_max);
                    }
                }
            }
            Origin::Source { .. } => {}
        }
        drop(queued.permit);
        None
    }
}
