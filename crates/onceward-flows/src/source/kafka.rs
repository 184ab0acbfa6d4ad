//! Kafka as a source. A position is the offset in the partition and one more, as 0 is the start. Partitions are assigned
//! by the consumer's own leases, so there is no consumer group and no offset is committed to the brokers.

mod retention;

use bytes::Bytes;
use onceward::{Error, ErrorKind, Result};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::time::Duration;

use self::retention::TopicSettings;
use super::found::Found;
use super::gaps::Gaps;
use super::{Delivery, HandledMessage, Reader, Source, SourceFuture};
use crate::kafka::{ANSWER_MAX, blocking, check_topic, failed};
use crate::layout::{Layout, MESSAGE_ID, ORDERING_KEY, POSITION, TOPIC};

/// Reads what a `KafkaPublisher` has published to the same topic.
///
/// A topic that is compacted, or that keeps its messages for longer (`retention.ms`) than the consumer remembers them (7 days by
/// default), is refused. Brokers that do not say it (the right `DESCRIBE_CONFIGS` is missing, or the call) are believed to fit,
/// with a warning.
#[derive(Clone, Debug)]
pub struct KafkaSource {
    servers: String,
    layout: Layout,
    gaps: Gaps,
}

impl KafkaSource {
    /// Reads the topic `prefix`, which must have this number of partitions.
    pub fn new(servers: &str, prefix: &str, partitions: u32) -> Result<Self> {
        let layout = Layout::new(prefix, partitions)?;
        Ok(Self { servers: servers.to_owned(), layout, gaps: Gaps::default() })
    }

    /// How often a partition was opened whose messages behind the last one that was handled had been removed.
    pub fn gaps(&self) -> u64 {
        self.gaps.count()
    }

    fn consumer(&self) -> Result<StreamConsumer> {
        ClientConfig::new()
            .set("bootstrap.servers", &self.servers)
            .set("client.id", "onceward")
            // The client wants a name; no group is joined.
            .set("group.id", format!("onceward-{}", self.layout.prefix()))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // A place that is gone is an error, never a jump.
            .set("auto.offset.reset", "error")
            .set("fetch.wait.max.ms", "200")
            .create()
            .map_err(|error| failed("no client for Kafka", error))
    }

    async fn check_brokers(&self, retention: Option<Duration>) -> Result<()> {
        let (consumer, layout) = (self.consumer()?, self.layout.clone());
        blocking(move || {
            let metadata = consumer.fetch_metadata(Some(layout.prefix()), ANSWER_MAX);
            check_topic(&layout, &metadata.map_err(lost)?)
        })
        .await?;
        let topic = self.layout.prefix();
        for warning in retention::check(topic, &self.settings().await?, retention)? {
            tracing::warn!(topic, "{warning}");
        }
        Ok(())
    }

    /// What the brokers say of the topic.
    async fn settings(&self) -> Result<TopicSettings> {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", &self.servers)
            .set("client.id", "onceward")
            .create()
            .map_err(|error| failed("no client for Kafka", error))?;
        let topic = ResourceSpecifier::Topic(self.layout.prefix());
        let options = AdminOptions::new().request_timeout(Some(ANSWER_MAX));
        let described = admin.describe_configs([&topic], &options).await;
        // It waits for its thread.
        tokio::task::spawn_blocking(move || drop(admin));
        let described = match described {
            Ok(mut described) => described.pop().and_then(Result::ok),
            Err(error) if error.rdkafka_error_code().is_some_and(retention::is_no_answer) => {
                return Err(lost(error));
            }
            Err(error) => {
                tracing::info!(%error, "Kafka does not describe its topics");
                None
            }
        };
        let setting = |name| described.as_ref()?.get(name)?.value.clone();
        Ok(TopicSettings {
            cleanup_policy: setting("cleanup.policy"),
            retention_ms: setting("retention.ms"),
            retention_bytes: setting("retention.bytes"),
        })
    }

    async fn open_partition(&self, partition: u32, after: i64) -> Result<Box<dyn Reader>> {
        let (consumer, topic) = (self.consumer()?, self.layout.prefix().to_owned());
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let asked = topic.clone();
        let (consumer, (low, high)) = blocking(move || {
            let ends = consumer.fetch_watermarks(&asked, number, ANSWER_MAX).map_err(lost)?;
            Ok((consumer, ends))
        })
        .await?;
        let place = self.layout.place(partition);
        if after > high {
            let detail = format!(
                "the partition `{place}` ends at {high}, and the consumer has handled it up to {after}: the topic was made \
                 again, or has lost messages; use another name for it"
            );
            return Err(Error::new(ErrorKind::Foreign, detail));
        }
        if after > 0 && low > after {
            self.gaps.note(&place, after, low + 1);
        }
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, number, Offset::Offset(after.max(low))).map_err(lost)?;
        consumer.assign(&list).map_err(lost)?;
        Ok(Box::new(KafkaReader { consumer, place }))
    }
}

impl Source for KafkaSource {
    fn name(&self) -> &str {
        self.layout.prefix()
    }

    fn partitions(&self) -> u32 {
        self.layout.partitions()
    }

    fn check(&self, retention: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(self.check_brokers(retention))
    }

    fn open(&self, partition: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        Box::pin(self.open_partition(partition, after))
    }

    fn handled<'a>(&'a self, _: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct KafkaReader {
    consumer: StreamConsumer,
    place: String,
}

impl Reader for KafkaReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(async {
            let message = self.consumer.recv().await.map_err(lost)?;
            Ok(delivery(&self.place, &message))
        })
    }
}

fn delivery(place: &str, message: &BorrowedMessage<'_>) -> Delivery {
    let payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
    let mut found = Found { payload, ..Found::default() };
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        let what = format!("the header `{}`", header.key);
        let Some(value) = found.text(&what, header.value.unwrap_or_default()) else { continue };
        match header.key {
            MESSAGE_ID => found.id = Some(value),
            TOPIC => found.topic = Some(value),
            ORDERING_KEY => found.ordering_key = Some(value),
            POSITION => found.read_number(&value),
            name => found.headers.push((name.to_owned(), value)),
        }
    }
    let offset = message.offset();
    found.into_delivery(&format!("{place}:{offset}"), offset.saturating_add(1))
}

fn lost(error: rdkafka::error::KafkaError) -> Error {
    failed("Kafka cannot be read", error)
}
