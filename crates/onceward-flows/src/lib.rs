#![doc = include_str!("../README.md")]

#[cfg(all(feature = "messages", not(any(feature = "mysql", feature = "postgres", feature = "sqlite"))))]
compile_error!(
    "messages are kept in a database: choose the feature `postgres`, `mysql` or `sqlite` of onceward-flows"
);

mod barrier;
#[cfg(feature = "messages")]
pub mod conformance;
#[cfg(feature = "messages")]
mod consumer;
#[cfg(feature = "messages")]
mod dead_letters;
#[cfg(all(feature = "kafka", feature = "messages"))]
mod kafka;
#[cfg(feature = "messages")]
mod key_queue;
#[cfg(feature = "messages")]
mod lane;
#[cfg(all(
    feature = "messages",
    any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis")
))]
mod layout;
#[cfg(feature = "messages")]
mod message;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "messages")]
mod outbox;
#[cfg(feature = "messages")]
mod parts;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "messages")]
mod publisher;
#[cfg(all(feature = "rabbitmq", feature = "messages"))]
mod rabbitmq;
#[cfg(all(feature = "redis", feature = "messages"))]
mod redis;
#[cfg(feature = "messages")]
mod relay;
mod saga;
#[cfg(feature = "messages")]
mod source;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "messages")]
mod statements;
#[cfg(feature = "messages")]
mod tables;
#[cfg(feature = "messages")]
mod versions;

pub use barrier::{Barrier, BarrierGuard, Entered, KeyedCall, barrier};
#[cfg(feature = "messages")]
pub use consumer::{
    BATCH_MESSAGES_MAX, Consumer, ConsumerCounts, ConsumerDatabase, ConsumerOptions, Failure, MissingId,
    OnDead, Received,
};
#[cfg(feature = "messages")]
pub use dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterState, DeadLetters, RetriedPage};
#[cfg(feature = "messages")]
pub use message::{
    HEADERS_BYTES_MAX, HEADERS_MAX, Message, ORDERING_KEY_BYTES_MAX, PAYLOAD_BYTES_MAX, TOPIC_BYTES_MAX,
};
#[cfg(feature = "messages")]
pub use outbox::{MESSAGES_MAX, Messages, Outbox, Wake};
#[cfg(feature = "messages")]
pub use parts::PART_LEASE_MIN;
#[cfg(all(feature = "http", feature = "messages"))]
pub use publisher::HttpPublisher;
#[cfg(all(feature = "kafka", feature = "messages"))]
pub use publisher::KafkaPublisher;
#[cfg(all(feature = "nats", feature = "messages"))]
pub use publisher::NatsPublisher;
#[cfg(all(feature = "rabbitmq", feature = "messages"))]
pub use publisher::RabbitMqPublisher;
#[cfg(all(feature = "redis", feature = "messages"))]
pub use publisher::RedisPublisher;
#[cfg(feature = "messages")]
pub use publisher::{Answered, MemoryPublisher, Outgoing, PublishEachFuture, PublishFuture, Publisher};
#[cfg(all(feature = "rabbitmq", feature = "messages"))]
pub use rabbitmq::RabbitMqStreams;
#[cfg(feature = "messages")]
pub use relay::{Relay, RelayCounts, RelayOptions};
pub use saga::{
    Closes, Direction, Driven, Ended, ITEMS_MAX, NeedsPerson, Reconciled, SAGA_NAME_BYTES_MAX, STEPS_MAX,
    Saga, SagaBuilder, SagaChange, SagaCounts, SagaFilter, SagaPage, SagaState, SagaView, Sagas, SettleStep,
    Signalled, Step, StepOutput, StepResult, StepStop, StepView, StoredSagas, UndoOrder, UnknownStep,
};
#[cfg(feature = "http")]
pub use saga::{StepRequest, http as saga_http};
#[cfg(all(feature = "kafka", feature = "messages"))]
pub use source::KafkaSource;
#[cfg(all(feature = "nats", feature = "messages"))]
pub use source::NatsSource;
#[cfg(all(feature = "rabbitmq", feature = "messages"))]
pub use source::RabbitMqSource;
#[cfg(all(feature = "redis", feature = "messages"))]
pub use source::RedisSource;
#[cfg(feature = "messages")]
pub use source::{Delivery, HandledMessage, OutboxSource, Reader, Source, SourceFuture};
#[cfg(feature = "messages")]
pub use tables::{Backlog, FlowTables, Migrated};
#[cfg(feature = "messages")]
pub use versions::{
    Advance, FirstVersion, OnGap, VersionAction, VersionRule, Versions, advance, advance_or, advance_to,
    version_header,
};

// The crates whose types are in signatures here, in the versions that fit.
#[cfg(feature = "nats")]
pub use async_nats;
#[cfg(feature = "postgres")]
pub use deadpool_postgres;
#[cfg(feature = "http")]
pub use {http, onceward_client, onceward_client::reqwest};

/// The page about messages, whose examples are compiled.
#[cfg(all(doctest, feature = "nats", feature = "postgres"))]
#[doc = include_str!("../../../docs/messages.md")]
struct MessagesPage;

/// The page about sagas, whose examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sagas.md")]
struct SagasPage;
