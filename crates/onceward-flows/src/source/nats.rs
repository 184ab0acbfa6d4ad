//! NATS JetStream as a source: a short-lived consumer of the server for each partition, without acknowledgements. The stream
//! keeps its messages by age or size.
//!
//! Whatever goes wrong (a gap in the numbers of the deliveries, no answer in time, a server that has forgotten the consumer)
//! is an error, and the partition is opened again behind the last message. (The ordered consumer of `async-nats` 0.51 does the
//! same by itself, but after one missed heartbeat it is never woken again.)

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::stream::{DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{Context, Message as NatsMessage};
use futures_util::StreamExt;
use onceward::{Error, ErrorKind, Result};

use super::found::Found;
use super::gaps::Gaps;
use super::{Delivery, HandledMessage, Reader, Source, SourceFuture};
use crate::layout::{Layout, ORDERING_KEY, POSITION};

/// Reads what a `NatsPublisher` with the same prefix and number of partitions has published.
#[derive(Clone, Debug)]
pub struct NatsSource {
    context: Context,
    stream: String,
    layout: Layout,
    gaps: Gaps,
}

impl NatsSource {
    /// Reads the subjects `PREFIX.PARTITION.TOPIC` of a stream.
    pub fn new(context: Context, stream: &str, prefix: &str, partitions: u32) -> Result<Self> {
        let layout = Layout::new(prefix, partitions)?;
        Ok(Self { context, stream: stream.to_owned(), layout, gaps: Gaps::default() })
    }

    /// How often a partition was opened whose stream no longer had everything behind the last message that was handled:
    /// messages may be lost. (All partitions share a stream, so that those removed may be of another partition.)
    pub fn gaps(&self) -> u64 {
        self.gaps.count()
    }

    async fn check_stream(&self, retention: Option<Duration>) -> Result<()> {
        let stream = self.context.get_stream(&self.stream).await.map_err(|error| {
            let detail = format!("NATS has no stream `{}` that can be read", self.stream);
            Error::new(ErrorKind::Unavailable, detail).caused_by(error)
        })?;
        let config = &stream.cached_info().config;
        if config.retention != RetentionPolicy::Limits {
            return Err(unfit(format!(
                "the stream `{}` removes messages that were read once (retention {:?}); make one with `limits`",
                self.stream, config.retention
            )));
        }
        let drops_old = config.discard == DiscardPolicy::Old;
        let drops = [
            ("max_messages", config.max_messages, drops_old),
            ("max_bytes", config.max_bytes, drops_old),
            (
                "max_messages_per_subject",
                config.max_messages_per_subject,
                drops_old || !config.discard_new_per_subject,
            ),
        ];
        if let Some((name, limit, _)) = drops.into_iter().find(|(_, limit, drops)| *limit > 0 && *drops) {
            return Err(unfit(format!(
                "the stream `{}` drops its oldest messages when there are too many ({name} is {limit}), also unread \
                 ones; set discard to `new`, so that the relay waits instead, or remove the limit",
                self.stream
            )));
        }
        match retention {
            Some(retention) if config.max_age > retention => {
                return Err(unfit(format!(
                    "the stream `{}` keeps messages for {:?}, the consumer remembers them for {retention:?}: a replay could \
                     run an effect twice; shorten max_age, or lengthen the retention of the consumer",
                    self.stream, config.max_age
                )));
            }
            Some(_) if config.max_age.is_zero() => tracing::warn!(
                stream = self.stream,
                "the stream keeps messages forever, the consumer does not remember them that long: \
                 do not reset its position to messages that are older than its retention"
            ),
            _ => {}
        }
        let mut subjects = stream.info_with_subjects(self.layout.all()).await.map_err(lost)?;
        let partitions = self.layout.partitions();
        while let Some(subject) = subjects.next().await {
            let (subject, _) = subject.map_err(lost)?;
            if self.layout.parse(&subject).is_none_or(|(partition, _)| partition >= partitions) {
                return Err(unfit(format!(
                    "the stream `{}` has messages on `{subject}`, which is none of {partitions} partitions of `{}`: \
                     they would never be handled",
                    self.stream,
                    self.layout.prefix()
                )));
            }
        }
        Ok(())
    }

    async fn open_partition(&self, partition: u32, after: i64) -> Result<Box<dyn Reader>> {
        let stream = self.context.get_stream(&self.stream).await.map_err(lost)?;
        let state = &stream.cached_info().state;
        let start_sequence = after.unsigned_abs() + 1;
        if state.last_sequence < after.unsigned_abs() {
            // New messages would get numbers that count as handled.
            return Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "the stream `{}` ends at {}, and the consumer has handled it up to {after}: it was made again, or has lost \
                     messages; use another name for the stream",
                    self.stream, state.last_sequence
                ),
            ));
        }
        if after > 0 && state.first_sequence > start_sequence {
            let first = i64::try_from(state.first_sequence).unwrap_or(i64::MAX);
            self.gaps.note(&self.layout.place(partition), after, first);
        }
        let config = pull::Config {
            filter_subject: self.layout.filter(partition),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
            ack_policy: AckPolicy::None,
            inactive_threshold: Duration::from_secs(30),
            memory_storage: true,
            ..Default::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(lost)?;
        let (layout, stream) = (self.layout.clone(), self.stream.clone());
        Ok(Box::new(NatsReader { consumer, request: None, has_come: false, last: 0, layout, stream }))
    }
}

impl Source for NatsSource {
    fn name(&self) -> &str {
        &self.stream
    }

    fn partitions(&self) -> u32 {
        self.layout.partitions()
    }

    fn check(&self, retention: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(self.check_stream(retention))
    }

    fn open(&self, partition: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        Box::pin(self.open_partition(partition, after))
    }

    fn handled<'a>(&'a self, _: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Messages of one request.
const REQUEST_MESSAGES: usize = 200;
/// How long the server keeps a request open.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// By how much it may be late.
const LATE_MAX: Duration = Duration::from_secs(3);

struct NatsReader {
    consumer: Consumer<pull::Config>,
    request: Option<pull::Batch>,
    /// Whether the request has brought a message.
    has_come: bool,
    /// The number of the last delivery: they have no gaps.
    last: u64,
    layout: Layout,
    stream: String,
}

impl NatsReader {
    async fn next_delivery(&mut self) -> Result<Delivery> {
        loop {
            let Some(request) = &mut self.request else {
                let request =
                    self.consumer.batch().max_messages(REQUEST_MESSAGES).expires(REQUEST_TIME).messages();
                self.request = Some(in_time(request).await?.map_err(lost)?);
                self.has_come = false;
                continue;
            };
            let Some(message) = in_time(request.next()).await? else {
                self.request = None;
                if !self.has_come {
                    self.check_last().await?;
                }
                continue;
            };
            let message = message.map_err(lost)?;
            let number = message.info().map_err(lost)?.consumer_sequence;
            if number != self.last + 1 {
                return Err(gap());
            }
            (self.has_come, self.last) = (true, number);
            return delivery(&self.layout, &self.stream, &message);
        }
    }

    /// The last deliveries may have been lost with a connection, and nothing came after them.
    async fn check_last(&mut self) -> Result<()> {
        let info = in_time(self.consumer.info()).await?.map_err(lost)?;
        if info.delivered.consumer_sequence == self.last { Ok(()) } else { Err(gap()) }
    }
}

impl Reader for NatsReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(self.next_delivery())
    }
}

async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T> {
    let answer = tokio::time::timeout(REQUEST_TIME + LATE_MAX, answer).await;
    answer.map_err(|_| Error::new(ErrorKind::Unavailable, "NATS does not answer"))
}

fn gap() -> Error {
    Error::new(ErrorKind::Unavailable, "messages were lost on their way from NATS; reading them again")
}

fn delivery(layout: &Layout, stream: &str, message: &NatsMessage) -> Result<Delivery> {
    let info = message.info().map_err(|error| {
        Error::new(ErrorKind::Damaged, "NATS delivered a message without its place").caused_by(error)
    })?;
    let place = info.stream_sequence;
    let position = i64::try_from(place).unwrap_or(i64::MAX);
    let mut found = Found { payload: message.payload.clone(), ..Found::default() };
    found.topic = layout.parse(&message.subject).map(|(_, topic)| topic.to_owned());
    for (name, values) in message.headers.iter().flat_map(async_nats::HeaderMap::iter) {
        let Some(value) = values.first().map(|value| value.as_str().to_owned()) else { continue };
        match name.to_string() {
            name if name == "Nats-Msg-Id" => found.id = Some(value),
            name if name == ORDERING_KEY => found.ordering_key = Some(value),
            name if name == POSITION => found.read_number(&value),
            name => found.headers.push((name, value)),
        }
    }
    Ok(found.into_delivery(&format!("{stream}:{place}"), position))
}

fn lost(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Unavailable, "NATS cannot be read").caused_by(error)
}

fn unfit(detail: String) -> Error {
    Error::new(ErrorKind::Unfit, detail)
}
