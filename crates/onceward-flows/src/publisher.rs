//! Where a relay publishes to. A broker is one file and one feature; [`crate::conformance::publisher`] tests it.

mod memory;
#[cfg(feature = "nats")]
mod nats;

use std::future::Future;
use std::pin::Pin;

use onceward::Result;

pub use memory::MemoryPublisher;
#[cfg(feature = "nats")]
pub use nats::NatsPublisher;

use crate::lane::lane_of;
use crate::message::Message;

/// A message on its way to the broker.
#[derive(Clone, Debug)]
pub struct Outgoing {
    message: Message,
    position: i64,
}

impl Outgoing {
    /// A message and its position in the outbox.
    pub fn new(message: Message, position: i64) -> Self {
        Self { message, position }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Its position in the outbox: it grows within an ordering key, and has gaps.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Which of `partitions` it belongs in: the same for all messages of an ordering key.
    pub fn partition(&self, partitions: u32) -> u32 {
        lane_of(&self.message) % partitions.max(1)
    }
}

/// One result for each message of a batch.
pub type PublishFuture<'a> = Pin<Box<dyn Future<Output = Vec<Result<()>>> + Send + 'a>>;

/// Publishes messages to a broker.
pub trait Publisher: Send + Sync {
    /// Publishes a batch, in which no two messages have the same ordering key. `Ok` means that the broker has confirmed
    /// the message and keeps it; the relay then removes it. After an error the relay sends the message again, so the
    /// broker may get it twice; its id is the same. An error concerns its own message only.
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a>;
}
