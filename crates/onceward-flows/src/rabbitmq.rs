//! RabbitMQ, for the publisher and the source: the stream queues of a flow, and connections.
//!
//! A partition is a queue of the type `stream` (RabbitMQ 3.9 or later): a log, read by any number of readers from any
//! place. Classic and quorum queues give a message to one reader and redeliver it out of order, so they are no source.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties};
use onceward::{Error, ErrorKind, Result};

use crate::layout::Layout;

/// How long opening a connection may take, and any answer of the server.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
const MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// The stream queues `PREFIX.PARTITION` of a flow, which a publisher makes and a source reads.
///
/// ```
/// use std::time::Duration;
///
/// let streams = onceward_flows::RabbitMqStreams::new("amqp://localhost:5672/%2f", "shop", 16)?
///     .with_max_age(Duration::from_secs(3 * 86_400));
/// # Ok::<(), onceward::Error>(())
/// ```
#[derive(Clone)]
pub struct RabbitMqStreams {
    pub(crate) url: String,
    pub(crate) layout: Layout,
    pub(crate) max_age: Option<Duration>,
}

impl RabbitMqStreams {
    /// Streams at this address, which keep messages for 7 days. The number of partitions (1 to 1,024) bounds how many
    /// processes a consumer can have; it cannot be changed while messages are unread.
    pub fn new(url: &str, prefix: &str, partitions: u32) -> Result<Self> {
        check_url(url)?;
        Ok(Self { url: url.to_owned(), layout: Layout::new(prefix, partitions)?, max_age: Some(MAX_AGE) })
    }

    /// Sets how long the streams keep messages, in whole seconds: their `x-max-age`. It must be the same as the one they
    /// were made with, and at most what consumers remember.
    pub fn with_max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(max_age);
        self
    }

    /// The streams have no `x-max-age` and keep everything.
    pub fn without_max_age(mut self) -> Self {
        self.max_age = None;
        self
    }

    /// Makes the streams, or checks that they are as they should be.
    pub(crate) async fn declare(&self, channel: &Channel) -> Result<()> {
        for partition in 0..self.layout.partitions() {
            let place = self.layout.place(partition);
            let mut arguments = FieldTable::default();
            arguments.insert("x-queue-type".into(), text("stream"));
            if let Some(age) = self.max_age {
                arguments.insert("x-max-age".into(), text(&format!("{}s", age.as_secs())));
            }
            let name: ShortString = place.as_str().into();
            let declared =
                in_time(channel.queue_declare(name, QueueDeclareOptions::durable(), arguments)).await?;
            declared.map_err(|error| {
                let detail =
                    format!("the queue `{place}` of RabbitMQ is not the stream that is needed ({error})");
                Error::new(ErrorKind::Unfit, detail)
            })?;
        }
        Ok(())
    }
}

/// Without the address, which has a password in it.
impl std::fmt::Debug for RabbitMqStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { layout, max_age, .. } = self;
        f.debug_struct("RabbitMqStreams")
            .field("layout", layout)
            .field("max_age", max_age)
            .finish_non_exhaustive()
    }
}

pub(crate) fn check_url(url: &str) -> Result<()> {
    if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
        let detail = "an address of RabbitMQ looks like amqp://user:password@host:5672/%2f";
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    Ok(())
}

pub(crate) async fn connect(url: &str) -> Result<(Connection, Channel)> {
    let properties = ConnectionProperties::default().with_connection_name("onceward".into());
    let unreachable = |error: lapin::Error| {
        Error::new(ErrorKind::Unavailable, format!("RabbitMQ cannot be reached ({error})"))
    };
    let connection = in_time(Connection::connect(url, properties)).await?.map_err(unreachable)?;
    let channel = in_time(connection.create_channel()).await?.map_err(unreachable)?;
    Ok((connection, channel))
}

pub(crate) async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T> {
    let answer = tokio::time::timeout(ANSWER_MAX, answer).await;
    answer.map_err(|_| {
        let detail = "RabbitMQ does not answer; it may be out of memory or disk space";
        Error::new(ErrorKind::Unavailable, detail).maybe_applied()
    })
}

pub(crate) fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}
