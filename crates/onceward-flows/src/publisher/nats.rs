//! NATS JetStream. A message goes to the subject `PREFIX.PARTITION.TOPIC` with its id as `Nats-Msg-Id`, by which the
//! server drops copies that come within its duplicate window (two minutes by default). Later copies are dropped by the
//! consumer.

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use futures_util::future::join_all;
use onceward::{Error, ErrorKind, Result};

use super::{Outgoing, PublishFuture, Publisher};
use crate::layout::{Layout, ORDERING_KEY, POSITION};

/// Publishes to a stream of NATS JetStream, in partitions.
#[derive(Clone, Debug)]
pub struct NatsPublisher {
    context: Context,
    layout: Layout,
}

impl NatsPublisher {
    /// Publishes to the subjects `PREFIX.PARTITION.TOPIC`. There must be a stream that takes `PREFIX.>`. The number of
    /// partitions (1 to 1,024) bounds how many processes a consumer can have; it cannot be changed while messages are
    /// unread.
    pub fn new(context: Context, prefix: &str, partitions: u32) -> Result<Self> {
        Ok(Self { context, layout: Layout::new(prefix, partitions)? })
    }

    async fn publish_one(&self, outgoing: &Outgoing) -> Result<()> {
        let message = outgoing.message();
        let mut headers = HeaderMap::new();
        for (name, value) in message.headers() {
            headers.insert(name.as_str(), value.as_str());
        }
        headers.insert(async_nats::header::NATS_MESSAGE_ID, message.id());
        headers.insert(POSITION, outgoing.position().to_string());
        if let Some(key) = message.ordering_key() {
            headers.insert(ORDERING_KEY, key);
        }
        let subject = self.layout.subject(outgoing.partition(self.layout.partitions()), message.topic());
        let sent = self.context.publish_with_headers(subject, headers, message.payload().clone()).await;
        let confirmed = match sent {
            Ok(confirmation) => confirmation.await.map(drop),
            Err(error) => Err(error),
        };
        confirmed.map_err(|error| {
            let detail = match error.kind() {
                PublishErrorKind::StreamNotFound => format!(
                    "no stream of NATS takes the subjects of `{}`; add `{}` to one",
                    self.layout.prefix(),
                    self.layout.all()
                ),
                PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
                    "NATS did not confirm a message".to_owned()
                }
                _ => format!("NATS refused a message ({error})"),
            };
            Error::new(ErrorKind::Unavailable, detail).caused_by(error).maybe_applied()
        })
    }
}

impl Publisher for NatsPublisher {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(join_all(batch.iter().map(|outgoing| self.publish_one(outgoing))))
    }

    fn target(&self) -> String {
        format!("NATS, {} partitions of `{}`", self.layout.partitions(), self.layout.prefix())
    }
}
