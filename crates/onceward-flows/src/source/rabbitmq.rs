//! The stream queues of RabbitMQ as a source. A position is the offset in the stream and one more, as 0 is the start.
//!
//! A partition is opened at the last message that was handled, which is then left out: so a stream that was made again and
//! one that was cut off are noticed. Acknowledgements only tell the server to send more.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use lapin::message::Delivery as RabbitDelivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, Consumer};
use onceward::{Error, ErrorKind, Result};

use super::found::Found;
use super::gaps::Gaps;
use super::{Delivery, HandledMessage, Reader, Source, SourceFuture};
use crate::layout::{ORDERING_KEY, POSITION, TOPIC};
use crate::rabbitmq::{ANSWER_MAX, RabbitMqStreams, connect, in_time};

/// Messages that the server sends ahead.
const AHEAD: u16 = 200;
/// Where RabbitMQ says the place of a message.
const OFFSET: &str = "x-stream-offset";

/// Reads what a `RabbitMqPublisher` has published to the same streams.
#[derive(Clone, Debug)]
pub struct RabbitMqSource {
    streams: RabbitMqStreams,
    gaps: Gaps,
}

impl RabbitMqSource {
    /// Reads these streams.
    pub fn new(streams: &RabbitMqStreams) -> Self {
        Self { streams: streams.clone(), gaps: Gaps::default() }
    }

    /// How often a partition was opened whose messages behind the last one that was handled had been removed.
    pub fn gaps(&self) -> u64 {
        self.gaps.count()
    }

    async fn check_streams(&self, retention: Option<Duration>) -> Result<()> {
        match (self.streams.max_age, retention) {
            (Some(age), Some(retention)) if age > retention => {
                return Err(Error::new(
                    ErrorKind::Unfit,
                    format!(
                        "the streams of `{}` keep messages for {age:?}, the consumer remembers them for {retention:?}: a \
                         replay could run an effect twice; shorten max_age, or lengthen the retention of the consumer",
                        self.streams.layout.prefix()
                    ),
                ));
            }
            (None, Some(_)) => tracing::warn!(
                streams = self.streams.layout.prefix(),
                "the streams keep messages forever, the consumer does not remember them that long: do not reset its \
                 position to messages that are older than its retention"
            ),
            _ => {}
        }
        let (connection, channel) = connect(&self.streams.url).await?;
        self.streams.declare(&channel).await?;
        // A publisher with more partitions has made all of them. Asking for one that is missing ends the channel.
        let (prefix, partitions) = (self.streams.layout.prefix(), self.streams.layout.partitions());
        let place: ShortString = self.streams.layout.place(partitions).into();
        let asking = in_time(connection.create_channel()).await?.map_err(lost)?;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
        if in_time(asking.queue_declare(place.clone(), options, FieldTable::default())).await?.is_ok() {
            let detail = format!(
                "there is a queue `{place}`, which is none of {partitions} partitions of `{prefix}`: its messages would never \
                 be handled"
            );
            return Err(Error::new(ErrorKind::Unfit, detail));
        }
        Ok(())
    }

    async fn open_partition(&self, partition: u32, after: i64) -> Result<Box<dyn Reader>> {
        let (connection, channel) = connect(&self.streams.url).await?;
        let place = self.streams.layout.place(partition);
        in_time(channel.basic_qos(AHEAD, BasicQosOptions::default())).await?.map_err(lost)?;
        // From the last one that was handled on.
        let mut arguments = FieldTable::default();
        arguments.insert(OFFSET.into(), AMQPValue::LongLongInt((after - 1).max(0)));
        let queue: ShortString = place.as_str().into();
        let consume =
            channel.basic_consume(queue, ShortString::default(), BasicConsumeOptions::default(), arguments);
        let consumer = in_time(consume).await?.map_err(lost)?;
        let mut reader = RabbitReader {
            consumer,
            channel,
            _connection: connection,
            place,
            after: 0,
            read: VecDeque::new(),
        };
        if after > 0 {
            let first = match tokio::time::timeout(ANSWER_MAX, reader.receive()).await {
                Ok(received) => received.map(|()| reader.read.front().map_or(0, |first| first.position))?,
                Err(_) => {
                    let detail = format!(
                        "the stream `{}` has nothing at {after}, up to which the consumer has handled it: it was made again, \
                         or has lost messages; use another prefix",
                        reader.place
                    );
                    return Err(Error::new(ErrorKind::Foreign, detail));
                }
            };
            if first > after + 1 {
                self.gaps.note(&reader.place, after, first);
            }
            reader.read.retain(|delivery| delivery.position > after);
            reader.after = after;
        }
        Ok(Box::new(reader))
    }
}

impl Source for RabbitMqSource {
    fn name(&self) -> &str {
        self.streams.layout.prefix()
    }

    fn partitions(&self) -> u32 {
        self.streams.layout.partitions()
    }

    fn check(&self, retention: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(self.check_streams(retention))
    }

    fn open(&self, partition: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        Box::pin(self.open_partition(partition, after))
    }

    fn handled<'a>(&'a self, _: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct RabbitReader {
    consumer: Consumer,
    channel: Channel,
    _connection: Connection,
    place: String,
    after: i64,
    read: VecDeque<Delivery>,
}

impl RabbitReader {
    /// Takes in one delivery. It is kept before anything else is awaited, so that it is not lost if the future is dropped.
    async fn receive(&mut self) -> Result<()> {
        let delivery = match self.consumer.next().await {
            Some(delivery) => delivery.map_err(lost)?,
            None => {
                return Err(Error::new(ErrorKind::Unavailable, "RabbitMQ has ended the reading of a stream"));
            }
        };
        let tag = delivery.delivery_tag;
        let delivery = read_delivery(&self.place, delivery)?;
        if delivery.position > self.after {
            self.after = delivery.position;
            self.read.push_back(delivery);
        }
        // With all before it: one of them may have been dropped here.
        let options = BasicAckOptions { multiple: true };
        self.channel.basic_ack(tag, options).await.map_err(lost)
    }

    async fn next_delivery(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.read.pop_front() {
                return Ok(delivery);
            }
            self.receive().await?;
        }
    }
}

impl Reader for RabbitReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(self.next_delivery())
    }
}

fn read_delivery(place: &str, delivery: RabbitDelivery) -> Result<Delivery> {
    let mut found = Found { payload: Bytes::from(delivery.data), ..Found::default() };
    found.id = delivery.properties.message_id().as_ref().map(|id| id.as_str().to_owned());
    let mut offset = None;
    for (name, value) in delivery.properties.headers().iter().flat_map(FieldTable::inner) {
        let name = name.as_str();
        match (name, value) {
            (OFFSET, AMQPValue::LongLongInt(at)) => offset = Some(*at),
            (POSITION, AMQPValue::LongLongInt(number)) => found.number = Some(*number),
            (_, AMQPValue::LongString(value)) => {
                let Some(value) = found.text(&format!("the header `{name}`"), value.as_bytes()) else {
                    continue;
                };
                match name {
                    TOPIC => found.topic = Some(value),
                    ORDERING_KEY => found.ordering_key = Some(value),
                    _ => found.headers.push((name.to_owned(), value)),
                }
            }
            (name, _) if crate::message::is_reserved(name) => {}
            (name, _) => {
                found.fault.get_or_insert_with(|| format!("the header `{name}` is not text"));
            }
        }
    }
    let Some(offset) = offset else {
        return Err(Error::new(
            ErrorKind::Damaged,
            "RabbitMQ delivered a message of a stream without its place",
        ));
    };
    Ok(found.into_delivery(&format!("{place}:{offset}"), offset.saturating_add(1)))
}

fn lost(error: lapin::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("RabbitMQ cannot be read ({error})")).caused_by(error)
}
