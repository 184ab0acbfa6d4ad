//! Kafka, for the publisher and the source: what both check of a topic. librdkafka does the rest, in threads of its own.

use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use rdkafka::metadata::Metadata;

use crate::layout::Layout;

/// How long the brokers may take to say what they have.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Whether the topic is there, with the right number of partitions: a message of an ordering key must always go to the
/// same one.
pub(crate) fn check_topic(layout: &Layout, metadata: &Metadata) -> Result<()> {
    let topic = metadata.topics().iter().find(|topic| topic.name() == layout.prefix());
    let count = topic.filter(|topic| topic.error().is_none()).map_or(0, |topic| topic.partitions().len());
    if count == 0 {
        let detail = format!("Kafka has no topic `{}`; make it", layout.prefix());
        return Err(Error::new(ErrorKind::Unavailable, detail));
    }
    if count != layout.partitions() as usize {
        let detail = format!(
            "the topic `{}` of Kafka has {count} partitions and not {}",
            layout.prefix(),
            layout.partitions()
        );
        return Err(Error::new(ErrorKind::Unfit, detail));
    }
    Ok(())
}

pub(crate) fn failed(detail: &str, error: rdkafka::error::KafkaError) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{detail} ({error})")).caused_by(error)
}

/// Calls what waits for the network, in a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(call).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, "a call of Kafka has ended without a result"))
    })
}
