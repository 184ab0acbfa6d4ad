//! Where a relay publishes to. A broker is one file and one feature; [`crate::conformance::publisher`] tests it.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod memory;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward::Result;

#[cfg(feature = "http")]
pub use http::HttpPublisher;
#[cfg(feature = "kafka")]
pub use kafka::KafkaPublisher;
pub use memory::MemoryPublisher;
#[cfg(feature = "nats")]
pub use nats::NatsPublisher;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMqPublisher;
#[cfg(feature = "redis")]
pub use redis::RedisPublisher;

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

/// The future of a call that gives its answers one by one.
pub type PublishEachFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Takes the result of the message at this place of the batch.
pub type Answered<'a> = dyn Fn(usize, Result<()>) + Send + Sync + 'a;

/// Publishes messages to a broker.
pub trait Publisher: Send + Sync {
    /// Publishes a batch, in which no two messages have the same ordering key. `Ok` means that the broker has confirmed
    /// the message and keeps it; the relay then removes it. After an error the relay sends the message again, so the
    /// broker may get it twice; its id is the same. An error concerns its own message only.
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a>;

    /// The same, and gives the result of each message as soon as it is known: what is confirmed is not lost if a call takes
    /// too long for another one. By default all results come at the end, as is right where one answer is as fast as all.
    fn publish_each<'a>(
        &'a self,
        batch: &'a [Outgoing],
        answered: &'a Answered<'a>,
    ) -> PublishEachFuture<'a> {
        Box::pin(async move {
            for (place, result) in self.publish(batch).await.into_iter().enumerate() {
                answered(place, result);
            }
        })
    }

    /// How many messages it sends at the same time: the relay's batches are at most as long.
    fn batch_max(&self) -> usize {
        usize::MAX
    }

    /// The longest time that one message may take, if it has a bound. The relay's own must be longer.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Names the broker and the place in it, without a password. Relays of one outbox must publish to the same target.
    fn target(&self) -> String {
        "a publisher".to_owned()
    }
}

/// A broker that is chosen at run time.
impl<P: Publisher + ?Sized> Publisher for Arc<P> {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        (**self).publish(batch)
    }

    fn publish_each<'a>(
        &'a self,
        batch: &'a [Outgoing],
        answered: &'a Answered<'a>,
    ) -> PublishEachFuture<'a> {
        (**self).publish_each(batch, answered)
    }

    fn batch_max(&self) -> usize {
        (**self).batch_max()
    }

    fn answers_within(&self) -> Option<Duration> {
        (**self).answers_within()
    }

    fn target(&self) -> String {
        (**self).target()
    }
}
