//! NATS JetStream as a broker.

use std::time::Duration;

use async_nats::jetstream::{self, consumer, stream};
use bytes::Bytes;
use futures_util::StreamExt;
use onceward_flows::conformance::{self, Broker};
use onceward_flows::{Message, NatsPublisher, NatsSource, Outgoing, Publisher, Source};

use crate::servers::Nats;
use crate::support::Killed;

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

/// A server of its own, for the suites that kill it.
struct KilledNats(Killed<Nats>);

impl Broker for KilledNats {
    async fn read(&self) -> onceward::Result<Vec<Message>> {
        let url = self.0.lock().url();
        Ok(read_all(&jetstream::new(async_nats::connect(url).await.unwrap()), "conformance").await)
    }

    async fn kill(&mut self) {
        self.0.with(Nats::kill).await;
    }

    async fn start(&mut self) {
        self.0.with(Nats::up).await;
        let url = self.0.lock().url();
        answers(&url, "conformance").await;
    }

    async fn write_malformed(&mut self, partition: u32) -> Vec<Bytes> {
        let url = self.0.lock().url();
        let context = jetstream::new(async_nats::connect(url).await.unwrap());
        let subject = format!("conformance.{partition}.orders");
        let mut spaced = async_nats::HeaderMap::new();
        spaced.insert("Nats-Msg-Id", "an id with spaces");
        for (headers, payload) in [(async_nats::HeaderMap::new(), "no id"), (spaced, "bad id")] {
            context
                .publish_with_headers(subject.clone(), headers, payload.into())
                .await
                .unwrap()
                .await
                .unwrap();
        }
        vec!["no id".into(), "bad id".into()]
    }
}

/// Waits until a server that was started again answers for a stream.
async fn answers(url: &str, name: &str) {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    while context.get_stream(name).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_and_a_source_conform() {
    for suite in ["publisher", "source"] {
        let Some(server) = Nats::start() else { return };
        let context = stream(&server.url(), "conformance").await;
        let publisher = NatsPublisher::new(context.clone(), "conformance", 4).unwrap();
        let mut broker = KilledNats(Killed::new(server));
        if suite == "publisher" {
            conformance::publisher(&publisher, &mut broker).await;
        } else {
            let source = NatsSource::new(context, "conformance", "conformance", 4).unwrap();
            conformance::source(&source, &publisher, &mut broker).await;
            crate::suites::check_numbers(&source, &publisher).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_drops_unread_messages_is_refused() {
    let Some(server) = Nats::shared() else { return };
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let base = stream::Config {
        name: "drops".to_owned(),
        subjects: vec!["drops.>".to_owned()],
        max_age: Duration::from_hours(24),
        ..Default::default()
    };
    let source = NatsSource::new(context.clone(), "drops", "drops", 2).unwrap();
    let cases = [
        (stream::Config { max_messages: 10, ..base.clone() }, Some("max_messages is 10")),
        (stream::Config { max_bytes: 1 << 20, ..base.clone() }, Some("max_bytes is 1048576")),
        (
            stream::Config { max_messages_per_subject: 3, ..base.clone() },
            Some("max_messages_per_subject is 3"),
        ),
        (stream::Config { max_messages: 10, discard: stream::DiscardPolicy::New, ..base.clone() }, None),
        (base, None),
    ];
    for (config, refusal) in cases {
        let _ = context.delete_stream("drops").await;
        context.create_stream(config).await.unwrap();
        match (source.check(None).await, refusal) {
            (Ok(()), None) => {}
            (Err(error), Some(text)) => {
                assert_eq!(error.kind(), onceward::ErrorKind::Unfit);
                assert!(error.to_string().contains(text), "{error}");
            }
            (checked, refusal) => panic!("{checked:?}, expected {refusal:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_refuses_clearly_and_takes_messages_again() {
    let Some(server) = Nats::shared() else { return };
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = stream::Config {
        name: "full".to_owned(),
        subjects: vec!["full.>".to_owned()],
        max_messages: 1,
        discard: stream::DiscardPolicy::New,
        ..Default::default()
    };
    let stream = context.create_stream(config).await.unwrap();
    let publisher = NatsPublisher::new(context, "full", 1).unwrap();
    let outgoing = [1, 2].map(|number| Outgoing::new(Message::new("t", number.to_string()), number));
    publisher.publish(&outgoing[..1]).await.pop().unwrap().unwrap();
    let error = publisher.publish(&outgoing[1..]).await.pop().unwrap().unwrap_err();
    assert!(error.to_string().contains("maximum messages exceeded"), "{error}");
    stream.purge().await.unwrap();
    publisher.publish(&outgoing[1..]).await.pop().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_removed_behind_the_position_and_a_stream_made_again_are_noticed() {
    let Some(server) = Nats::shared() else { return };
    let context = stream(&server.url(), "removed").await;
    let publisher = NatsPublisher::new(context.clone(), "removed", 1).unwrap();
    let source = NatsSource::new(context.clone(), "removed", "removed", 1).unwrap();
    for number in 1..=5 {
        let outgoing = [Outgoing::new(Message::new("t", number.to_string()), number)];
        publisher.publish(&outgoing).await.pop().unwrap().unwrap();
    }
    source.open(0, 2).await.map(drop).unwrap();
    assert_eq!(source.gaps(), 0);
    context.get_stream("removed").await.unwrap().purge().sequence(4).await.unwrap();
    source.open(0, 3).await.map(drop).unwrap();
    assert_eq!(source.gaps(), 0, "3 was handled, and 4 is there");
    let delivery = source.open(0, 2).await.unwrap().next().await.unwrap();
    assert_eq!((delivery.position, source.gaps()), (4, 1), "3 was not handled, and is gone");
    source.open(0, 0).await.map(drop).unwrap();
    assert_eq!(source.gaps(), 1, "a new consumer begins with what is there");
    let error = source.open(0, 6).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("made again"), "{error}");
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
