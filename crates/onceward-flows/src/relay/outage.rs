//! Whether the broker takes messages at all. Pure.
//!
//! A message that is refused has a pause of its own. When nothing but failures come, of many keys, the broker is the reason:
//! then one batch at a time is tried, with a pause between two, until one message goes through.

use std::time::Duration;

use onceward::Backoff;
use tokio::time::Instant;

use super::pause;

/// Failures in a row, and failing keys, that are an outage.
const FAILURES: usize = 32;
/// The longest pause: for as long a message with another fate may have to wait.
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Outage {
    in_a_row: usize,
    /// While it lasts: how many batches were tried, and when the next one may be.
    on: Option<(u32, Option<Instant>)>,
}

impl Outage {
    pub(super) fn is_on(&self) -> bool {
        self.on.is_some()
    }

    /// Whether another batch may be sent.
    pub(super) fn may_send(&self, now: Instant, in_flight: usize) -> bool {
        match self.on {
            None => true,
            Some((_, next)) => in_flight == 0 && next.is_none_or(|next| next <= now),
        }
    }

    /// When the next batch may be sent, in an outage.
    pub(super) fn next_send(&self) -> Option<Instant> {
        self.on.and_then(|(_, next)| next)
    }

    /// A batch was sent.
    pub(super) fn sent(&mut self, now: Instant, backoff: Backoff) {
        if let Some((batches, next)) = &mut self.on {
            *batches += 1;
            *next = Some(now + pause(backoff, *batches).min(PAUSE_MAX));
        }
    }

    /// A message was confirmed. Returns whether an outage is over.
    pub(super) fn succeeded(&mut self) -> bool {
        self.in_a_row = 0;
        self.on.take().is_some()
    }

    /// A message was not, and this number of keys is failing. Returns whether an outage begins.
    pub(super) fn failed(&mut self, failing: usize) -> bool {
        self.in_a_row += 1;
        let begins = self.on.is_none() && self.in_a_row >= FAILURES && failing >= FAILURES;
        if begins {
            self.on = Some((0, None));
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_and_no_success_are_an_outage_until_something_goes_through() {
        let (mut outage, now) = (Outage::default(), Instant::now());
        for _ in 0..100 {
            assert!(!outage.failed(3), "a few keys that fail again and again are none");
        }
        outage.succeeded();
        let begins = (0..100).filter(|n| outage.failed(n + 1)).count();
        assert_eq!(begins, 1, "it is said once");
        assert!(outage.may_send(now, 0) && !outage.may_send(now, 1));
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        for expected in [100, 200, 400, 800, 1_000, 1_000] {
            outage.sent(now, backoff);
            assert_eq!(outage.next_send(), Some(now + Duration::from_millis(expected)));
            assert!(!outage.may_send(now, 0));
        }
        assert!(outage.succeeded());
        assert!(outage.may_send(now, 9) && !outage.succeeded());
    }
}
