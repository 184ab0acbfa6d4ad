//! RabbitMQ, with publisher confirms: to the stream queues of a flow, or to an exchange. The message id is the property
//! `message-id`.
//!
//! RabbitMQ recognises no copies on this protocol and cannot fence off a relay that was paused: copies are dropped by the
//! consumer. A message that no queue takes is returned by the server, and counts as refused.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ExchangeKind};
use onceward::{Error, ErrorKind, Result};

use super::{Outgoing, PublishFuture, Publisher};
use crate::layout::{ORDERING_KEY, POSITION, TOPIC};
use crate::rabbitmq::{RabbitMqStreams, check_url, connect, in_time, text};

/// Kept on disk.
const PERSISTENT: u8 = 2;

/// Publishes to RabbitMQ.
#[derive(Clone)]
pub struct RabbitMqPublisher {
    target: Target,
    live: Arc<Mutex<Option<Live>>>,
    /// Held while a connection is being opened.
    opening: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug)]
enum Target {
    Streams(RabbitMqStreams),
    Exchange { url: String, exchange: String },
}

#[derive(Clone)]
struct Live {
    channel: Channel,
    _connection: Arc<Connection>,
}

impl RabbitMqPublisher {
    /// Publishes to the streams of a flow, and makes them if they do not exist. Fails if the server cannot be reached, or if
    /// a queue of that name is something else.
    pub async fn open(streams: &RabbitMqStreams) -> Result<Self> {
        Self::open_target(Target::Streams(streams.clone())).await
    }

    /// Publishes to an exchange that exists, with the topic as routing key: for queues that others consume. There is no
    /// source for them: classic and quorum queues redeliver out of order, so that neither order nor one effect can be
    /// promised behind them, and a line in the log says so.
    pub async fn open_exchange(url: &str, exchange: &str) -> Result<Self> {
        check_url(url)?;
        tracing::warn!(
            exchange,
            "publishing to an exchange: only the streams of a flow can be read by a consumer"
        );
        Self::open_target(Target::Exchange { url: url.to_owned(), exchange: exchange.to_owned() }).await
    }

    async fn open_target(target: Target) -> Result<Self> {
        let publisher = Self { target, live: Arc::default(), opening: Arc::default() };
        publisher.live().await?;
        Ok(publisher)
    }

    /// The channel that all share.
    async fn live(&self) -> Result<Live> {
        let current = || self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_up = |live: &Live| live.channel.status().connected();
        if let Some(live) = current().filter(is_up) {
            return Ok(live);
        }
        let _opening = self.opening.lock().await;
        if let Some(live) = current().filter(is_up) {
            return Ok(live);
        }
        let url = match &self.target {
            Target::Streams(streams) => &streams.url,
            Target::Exchange { url, .. } => url,
        };
        let (connection, channel) = connect(url).await?;
        match &self.target {
            Target::Streams(streams) => streams.declare(&channel).await?,
            Target::Exchange { exchange, .. } => {
                let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                let name: ShortString = exchange.as_str().into();
                let declared =
                    channel.exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default());
                in_time(declared).await?.map_err(|error| {
                    let detail = format!("RabbitMQ has no exchange `{exchange}` ({error})");
                    Error::new(ErrorKind::Unavailable, detail)
                })?;
            }
        }
        in_time(channel.confirm_select(ConfirmSelectOptions::default())).await?.map_err(refused)?;
        let live = Live { channel, _connection: Arc::new(connection) };
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        Ok(live)
    }

    async fn publish_one(&self, live: &Live, outgoing: &Outgoing) -> Result<()> {
        let message = outgoing.message();
        let mut headers = FieldTable::default();
        for (name, value) in message.headers() {
            headers.insert(short(name)?, text(value));
        }
        headers.insert(TOPIC.into(), text(message.topic()));
        headers.insert(POSITION.into(), AMQPValue::LongLongInt(outgoing.position()));
        if let Some(key) = message.ordering_key() {
            headers.insert(ORDERING_KEY.into(), text(key));
        }
        let properties = BasicProperties::default()
            .with_message_id(short(message.id())?)
            .with_delivery_mode(PERSISTENT)
            .with_headers(headers);
        let (exchange, routing_key) = match &self.target {
            Target::Streams(streams) => {
                let partition = outgoing.partition(streams.layout.partitions());
                (ShortString::default(), short(&streams.layout.place(partition))?)
            }
            Target::Exchange { exchange, .. } => (short(exchange)?, short(message.topic())?),
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let confirming = async {
            let sent =
                live.channel.basic_publish(exchange, routing_key, options, message.payload(), properties);
            sent.await?.await
        };
        match in_time(confirming).await?.map_err(refused)? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => {
                let detail = "RabbitMQ has no queue for a message, and returned it";
                Err(Error::new(ErrorKind::Unavailable, detail))
            }
            Confirmation::Nack(_) | Confirmation::NotRequested => {
                let detail = "RabbitMQ could not keep a message, and refused it";
                Err(Error::new(ErrorKind::Unavailable, detail).maybe_applied())
            }
        }
    }

    /// After an error the channel may be of no more use: confirmations of the next messages could be mixed up with those
    /// that are late.
    fn discard(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Publisher for RabbitMqPublisher {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let live = match self.live().await {
                Ok(live) => live,
                Err(error) => return batch.iter().map(|_| Err(error.clone())).collect(),
            };
            let results = join_all(batch.iter().map(|outgoing| self.publish_one(&live, outgoing))).await;
            let is_broken = |result: &Result<()>| {
                result.as_ref().is_err_and(|error| error.applied() == onceward::Applied::Maybe)
            };
            if results.iter().any(is_broken) {
                self.discard();
            }
            results
        })
    }

    fn target(&self) -> String {
        match &self.target {
            Target::Streams(streams) => {
                let layout = &streams.layout;
                format!("RabbitMQ, {} partitions of `{}`", layout.partitions(), layout.prefix())
            }
            Target::Exchange { exchange, .. } => format!("RabbitMQ, the exchange `{exchange}`"),
        }
    }
}

impl std::fmt::Debug for RabbitMqPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let target = match &self.target {
            Target::Streams(streams) => streams.layout.prefix(),
            Target::Exchange { exchange, .. } => exchange,
        };
        f.debug_struct("RabbitMqPublisher").field("target", &target).finish_non_exhaustive()
    }
}

fn short(text: &str) -> Result<ShortString> {
    ShortString::try_new(text).map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        Error::new(
            ErrorKind::Invalid,
            format!("`{shown}…` is longer than the 255 bytes that RabbitMQ takes there"),
        )
    })
}

fn refused(error: lapin::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("RabbitMQ did not confirm a message ({error})"))
        .caused_by(error)
        .maybe_applied()
}
