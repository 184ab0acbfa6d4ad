//! Kafka: an idempotent producer that waits for all replicas in sync. A message goes to the partition of its ordering key;
//! id, topic, ordering key and position are headers.
//!
//! The producer's own repetitions are recognised by the brokers; copies of a relay that was paused, or started again, are
//! not: the consumer drops them.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use onceward::{Error, Result};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

use super::{Outgoing, PublishFuture, Publisher};
use crate::kafka::{ANSWER_MAX, blocking, check_topic, failed};
use crate::layout::{Layout, MESSAGE_ID, ORDERING_KEY, POSITION, TOPIC};

/// Publishes to a topic of Kafka.
#[derive(Clone)]
pub struct KafkaPublisher {
    servers: String,
    layout: Layout,
    producer: Arc<Mutex<FutureProducer>>,
}

impl KafkaPublisher {
    /// Publishes to the topic `prefix`, which must have this number of partitions. `servers` is a list like
    /// `host:9092,other:9092`. The number of partitions cannot be changed while messages are unread.
    pub async fn open(servers: &str, prefix: &str, partitions: u32) -> Result<Self> {
        let layout = Layout::new(prefix, partitions)?;
        let producer = producer(servers)?;
        let (asking, asked) = (producer.clone(), layout.clone());
        blocking(move || {
            let metadata = asking.client().fetch_metadata(Some(asked.prefix()), ANSWER_MAX);
            check_topic(&asked, &metadata.map_err(|error| failed("Kafka cannot be reached", error))?)
        })
        .await?;
        Ok(Self { servers: servers.to_owned(), layout, producer: Arc::new(Mutex::new(producer)) })
    }

    async fn publish_one(&self, producer: &FutureProducer, outgoing: &Outgoing) -> Result<()> {
        let message = outgoing.message();
        let header = |headers: OwnedHeaders, key: &str, value: &str| {
            headers.insert(Header { key, value: Some(value) })
        };
        let mut headers = OwnedHeaders::new();
        for (name, value) in message.headers() {
            headers = header(headers, name, value);
        }
        headers = header(headers, MESSAGE_ID, message.id());
        headers = header(headers, TOPIC, message.topic());
        headers = header(headers, POSITION, &outgoing.position().to_string());
        if let Some(key) = message.ordering_key() {
            headers = header(headers, ORDERING_KEY, key);
        }
        let partition = outgoing.partition(self.layout.partitions());
        let record = FutureRecord::to(self.layout.prefix())
            .partition(i32::try_from(partition).unwrap_or(i32::MAX))
            .key(message.ordering_key().unwrap_or(message.id()))
            .payload(&message.payload()[..])
            .headers(headers);
        let sent = producer.send(record, ANSWER_MAX).await;
        sent.map(drop).map_err(|(error, _)| failed("Kafka did not confirm a message", error).maybe_applied())
    }

    fn current(&self) -> FutureProducer {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A producer that has lost its place takes no more messages: it is replaced.
    fn replace_if_useless(&self, used: &FutureProducer) -> Result<(), Error> {
        if used.client().fatal_error().is_some() {
            *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = producer(&self.servers)?;
        }
        Ok(())
    }
}

impl Publisher for KafkaPublisher {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            let producer = self.current();
            let results = join_all(batch.iter().map(|outgoing| self.publish_one(&producer, outgoing))).await;
            if results.iter().any(Result::is_err)
                && let Err(error) = self.replace_if_useless(&producer)
            {
                tracing::warn!(%error, "a new producer for Kafka could not be made");
            }
            results
        })
    }

    fn target(&self) -> String {
        format!("Kafka, {} partitions of `{}`", self.layout.partitions(), self.layout.prefix())
    }
}

impl std::fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaPublisher").field("layout", &self.layout).finish_non_exhaustive()
    }
}

fn producer(servers: &str) -> Result<FutureProducer> {
    ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("client.id", "onceward")
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // Longer than that, and the relay tries again.
        .set("message.timeout.ms", "20000")
        .set("queue.buffering.max.ms", "2")
        .create()
        .map_err(|error| failed("no client for Kafka", error))
}
