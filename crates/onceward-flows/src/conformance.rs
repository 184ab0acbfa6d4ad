//! Conformance suites, one call each: for authors of publishers and of sources. They run against the real broker, which
//! is killed and started again on the way.

mod publisher;
mod source;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use onceward::Result;

pub use publisher::publisher;
pub use source::source;

use crate::message::Message;
use crate::publisher::{Outgoing, Publisher};

/// The broker under test, as its author's test has started it.
pub trait Broker {
    /// Everything that the broker has kept so far, in its order within each ordering key, read by other means than the
    /// source that is tested.
    fn read(&self) -> impl Future<Output = Result<Vec<Message>>>;

    /// Ends the broker without warning (SIGKILL).
    fn kill(&mut self) -> impl Future<Output = ()>;

    /// Starts it again with its data, and returns when it answers.
    fn start(&mut self) -> impl Future<Output = ()>;

    /// Writes messages into a partition as no publisher of ours does: without an id, and with things that are out of
    /// bounds. Returns their payloads, in their order. None if that is not possible.
    fn write_malformed(&mut self, partition: u32) -> impl Future<Output = Vec<Bytes>>;
}

/// Nothing in a suite may take longer than this: a call that waits forever holds up everything.
const STUCK_AFTER: Duration = Duration::from_secs(90);

/// Fails a suite that waits forever.
async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(STUCK_AFTER, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: no end after {STUCK_AFTER:?}"))
}

/// Publishes a batch as a relay does: what was not confirmed is sent again until it is. Returns how many errors there
/// were.
async fn publish_all<P: Publisher>(publisher: &P, batch: &[Outgoing]) -> usize {
    let mut errors = 0;
    let mut left: Vec<Outgoing> = batch.to_vec();
    let publishing = async {
        while !left.is_empty() {
            let results = publisher.publish(&left).await;
            assert_eq!(results.len(), left.len(), "one answer for each message");
            let mut results = results.into_iter();
            left.retain(|_| results.next().is_some_and(|result| result.is_err()));
            errors += left.len();
            if !left.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    in_time("publishing", publishing).await;
    errors
}

/// A numbered message of a key; its number is its payload.
fn numbered(topic: &str, key: &str, number: usize) -> Outgoing {
    let message = Message::new(topic, number.to_string()).with_ordering_key(key);
    Outgoing::new(message, i64::try_from(number).expect("a small number") + 1)
}

/// The number in a message of [`numbered`].
fn number_of(message: &Message) -> usize {
    String::from_utf8_lossy(message.payload()).parse().expect("a number that was published here")
}
