//! Where a consumer gets its messages from: a log in partitions, read in order from a position that the consumer keeps in
//! its own database.
//!
//! The position is the acknowledgement. A broker that redelivers what was not acknowledged does so after later messages,
//! which breaks the order; a consumer that reads a log again from its position does not.

#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod found;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod gaps;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod outbox;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use onceward::Result;

#[cfg(feature = "kafka")]
pub use kafka::KafkaSource;
#[cfg(feature = "nats")]
pub use nats::NatsSource;
pub use outbox::OutboxSource;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqSource;
#[cfg(feature = "redis")]
pub use redis::RedisSource;

use crate::message::Message;

/// The future of a call of a source.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A message as it came, and its place in its partition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// The message. What it has of an id, a topic and headers is within all bounds.
    pub message: Message,
    /// Its position in the partition; it grows from message to message.
    pub position: i64,
    /// Why the message cannot be handled as it came: it then becomes a dead letter.
    pub fault: Option<String>,
    /// Its number in the outbox that it comes from (`Onceward-Position`), where the publisher has given one: it grows within
    /// an ordering key, and has gaps. A consumer notices by it that the broker has mixed up the order of a key.
    pub number: Option<i64>,
    /// The publisher has given no id, and the one in `message` is its place in the source: see
    /// [`ConsumerOptions::missing_id`](crate::ConsumerOptions::missing_id).
    pub has_derived_id: bool,
}

impl Delivery {
    /// A message and its position.
    pub fn new(message: Message, position: i64) -> Self {
        let fault = message.check().err().map(|error| error.to_string());
        Self { message, position, fault, number: None, has_derived_id: false }
    }

    /// Sets its number in the outbox that it comes from.
    pub fn with_number(mut self, number: i64) -> Self {
        self.number = Some(number);
        self
    }

    /// Notes that the id of the message is its place in the source, because its publisher has given none.
    pub fn with_derived_id(mut self) -> Self {
        self.has_derived_id = true;
        self
    }
}

/// A log of messages in partitions. All messages of an ordering key are in one partition, in their order.
pub trait Source: Send + Sync {
    /// The name of the source: a part of the idempotency key of every message.
    fn name(&self) -> &str;

    /// The number of partitions.
    fn partitions(&self) -> u32;

    /// Whether it takes messages out of the outbox of the consumer's own database, where no other consumer may then
    /// read.
    fn takes_from_outbox(&self) -> bool {
        false
    }

    /// Checks that the source is there and fits. `retention` is how long the consumer remembers what it has handled.
    fn check(&self, retention: Option<Duration>) -> SourceFuture<'_, ()>;

    /// Opens a partition behind a position; 0 is the start.
    fn open(&self, partition: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>>;

    /// These messages are handled: their position is behind that of the partition, or they are recorded elsewhere. A log
    /// that keeps its messages has nothing to do here.
    fn handled<'a>(&'a self, messages: &'a [HandledMessage]) -> SourceFuture<'a, ()>;
}

/// A message that a consumer is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandledMessage {
    pub(crate) lane: u32,
    /// Its position in its partition.
    pub position: i64,
}

/// Reads one partition.
pub trait Reader: Send {
    /// The next message; waits for it. After an error the partition is opened again. Dropping the future loses nothing.
    fn next(&mut self) -> SourceFuture<'_, Delivery>;
}
