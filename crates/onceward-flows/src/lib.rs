#![doc = include_str!("../README.md")]

#[cfg(feature = "postgres")]
pub mod conformance;
#[cfg(feature = "postgres")]
mod consumer;
#[cfg(feature = "postgres")]
mod dead_letters;
#[cfg(feature = "postgres")]
mod key_queue;
mod lane;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod outbox;
#[cfg(feature = "postgres")]
mod parts;
#[cfg(feature = "postgres")]
pub mod postgres;
mod publisher;
#[cfg(feature = "postgres")]
mod relay;
#[cfg(feature = "postgres")]
mod source;
#[cfg(feature = "postgres")]
mod versions;

#[cfg(feature = "postgres")]
pub use consumer::{Consumer, ConsumerCounts, ConsumerDatabase, ConsumerOptions, Failure, OnDead, Received};
#[cfg(feature = "postgres")]
pub use dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterState, DeadLetters};
pub use message::{
    HEADERS_BYTES_MAX, HEADERS_MAX, Message, ORDERING_KEY_BYTES_MAX, PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX,
};
pub use outbox::{MESSAGES_MAX, Messages, Outbox, Wake};
#[cfg(feature = "postgres")]
pub use parts::PART_LEASE_MIN;
#[cfg(feature = "nats")]
pub use publisher::NatsPublisher;
pub use publisher::{MemoryPublisher, Outgoing, PublishFuture, Publisher};
#[cfg(feature = "postgres")]
pub use relay::{Relay, RelayCounts, RelayOptions};
#[cfg(all(feature = "nats", feature = "postgres"))]
pub use source::NatsSource;
#[cfg(feature = "postgres")]
pub use source::{Delivery, HandledMessage, OutboxSource, Reader, Source, SourceFuture};
#[cfg(feature = "postgres")]
pub use versions::{Advance, FirstVersion, advance, advance_to};

/// The page about messages, whose examples are compiled.
#[cfg(all(doctest, feature = "nats", feature = "postgres"))]
#[doc = include_str!("../../../docs/messages.md")]
struct MessagesPage;
