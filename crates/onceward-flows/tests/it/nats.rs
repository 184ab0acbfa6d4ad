//! NATS JetStream as a broker.

use std::time::Duration;

use async_nats::jetstream::{self, consumer, stream};
use futures_util::StreamExt;
use onceward_flows::{Message, NatsPublisher, Outgoing, Publisher};

use crate::servers::Nats;

/// A stream for the subjects `NAME.>`.
pub(crate) async fn stream(url: &str, name: &str) -> jetstream::Context {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let config = stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        max_age: Duration::from_hours(24),
        ..Default::default()
    };
    context.get_or_create_stream(config).await.unwrap();
    context
}

/// Kills the server and starts it again, until its streams answer. A server that is killed while it still recovers from
/// an earlier kill sometimes accepts connections and answers no JetStream request any more (seen with 2.9 and 2.15): it
/// is not killed again before it answers, and restarted if it does not.
pub(crate) async fn kill_and_restart(server: &mut Nats, name: &str) {
    for _ in 0..RESTARTS_MAX {
        server.kill();
        server.up();
        let answers = async {
            let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
            while context.get_stream(name).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(ANSWERS_WITHIN, answers).await.is_ok() {
            return;
        }
    }
    panic!("NATS does not answer for the stream {name} after {RESTARTS_MAX} restarts");
}

const RESTARTS_MAX: usize = 3;
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Everything in a stream, in its order: what an independent reader sees.
pub(crate) async fn read_all(context: &jetstream::Context, name: &str) -> Vec<Message> {
    let stream = context.get_stream(name).await.unwrap();
    let count = stream.cached_info().state.messages;
    let config = consumer::pull::OrderedConfig::default();
    let mut messages = stream.create_consumer(config).await.unwrap().messages().await.unwrap();
    let mut read = Vec::new();
    for _ in 0..count {
        let message = messages.next().await.unwrap().unwrap();
        let topic = message.subject.splitn(3, '.').last().unwrap().to_owned();
        let mut found = Message::new(topic, message.payload.clone());
        for (name, values) in message.headers.as_ref().unwrap().iter() {
            let value = values[0].as_str().to_owned();
            found = match name.to_string().as_str() {
                "Nats-Msg-Id" => found.with_id(value),
                "Onceward-Ordering-Key" => found.with_ordering_key(value),
                "Onceward-Position" => found,
                other => found.with_header(other, value),
            };
        }
        read.push(found);
    }
    read
}

#[tokio::test]
async fn a_publisher_conforms() {
    let Some(server) = Nats::shared() else { return };
    let context = stream(&server.url(), "conformance").await;
    let publisher = NatsPublisher::new(context.clone(), "conformance", 4).unwrap();
    onceward_flows::conformance::publisher(&publisher, async || Ok(read_all(&context, "conformance").await))
        .await;
}

#[tokio::test]
async fn a_copy_within_the_window_of_the_server_is_dropped_there() {
    let Some(server) = Nats::shared() else { return };
    let context = stream(&server.url(), "copies").await;
    let publisher = NatsPublisher::new(context.clone(), "copies", 1).unwrap();
    let outgoing = [Outgoing::new(Message::new("t", "once"), 1)];
    for _ in 0..2 {
        publisher.publish(&outgoing).await.pop().unwrap().unwrap();
    }
    assert_eq!(read_all(&context, "copies").await.len(), 1);
}

#[tokio::test]
async fn a_missing_stream_is_named_and_fails_only_its_own_message() {
    let Some(server) = Nats::shared() else { return };
    let context = stream(&server.url(), "present").await;
    let publisher = NatsPublisher::new(context, "absent", 1).unwrap();
    let error =
        publisher.publish(&[Outgoing::new(Message::new("t", ""), 1)]).await.pop().unwrap().unwrap_err();
    assert!(error.to_string().contains("add `absent.>` to one"), "{error}");
}
