//! RabbitMQ as a broker: the stream queues of a flow, and exchanges to publish to.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onceward::ErrorKind;
use onceward_flows::conformance::{self, Broker};
use onceward_flows::{
    Message, Outgoing, Publisher, RabbitMqPublisher, RabbitMqSource, RabbitMqStreams, Source,
};

use crate::servers::RabbitMq;
use crate::support::Killed;

async fn channel(url: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// A reader of a stream from its start, as soon as the server gives one: after a restart that takes a moment.
async fn consumer(url: &str, partition: u32) -> (Connection, lapin::Consumer) {
    loop {
        let (connection, channel) = channel(url).await;
        channel.basic_qos(500, BasicQosOptions::default()).await.unwrap();
        let mut from = FieldTable::default();
        from.insert("x-stream-offset".into(), AMQPValue::LongString("first".into()));
        let queue = format!("conformance.{partition}");
        let consume = channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), from);
        if let Ok(consumer) = consume.await {
            return (connection, consumer);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A server of its own, for the suites that kill it.
struct KilledRabbit(Killed<RabbitMq>);

/// No message for this long is the end of a stream.
const END_AFTER: Duration = Duration::from_millis(400);

impl Broker for KilledRabbit {
    async fn read(&self) -> onceward::Result<Vec<Message>> {
        let url = self.0.lock().url();
        let mut messages = Vec::new();
        for partition in 0..2 {
            let (_connection, mut consumer) = consumer(&url, partition).await;
            while let Ok(Some(delivery)) = tokio::time::timeout(END_AFTER, consumer.next()).await {
                let delivery = delivery.unwrap();
                delivery.ack(BasicAckOptions::default()).await.unwrap();
                let mut message = Message::new("", delivery.data);
                message = message.with_id(delivery.properties.message_id().as_ref().unwrap().as_str());
                let mut topic = String::new();
                let headers = delivery.properties.headers().as_ref().unwrap();
                for (name, value) in headers.inner() {
                    let AMQPValue::LongString(value) = value else { continue };
                    let value = String::from_utf8(value.as_bytes().to_vec()).unwrap();
                    message = match name.as_str() {
                        "Onceward-Topic" => {
                            topic = value;
                            message
                        }
                        "Onceward-Ordering-Key" => message.with_ordering_key(value),
                        name => message.with_header(name, value),
                    };
                }
                let mut whole = Message::new(topic, message.payload().clone()).with_id(message.id());
                for (name, value) in message.headers() {
                    whole = whole.with_header(name, value);
                }
                messages.push(match message.ordering_key() {
                    Some(key) => whole.with_ordering_key(key),
                    None => whole,
                });
            }
        }
        Ok(messages)
    }

    async fn kill(&mut self) {
        self.0.with(RabbitMq::kill).await;
    }

    async fn start(&mut self) {
        self.0.with(RabbitMq::up).await;
        // It listens before its streams have found their leaders.
        let url = self.0.lock().url();
        for partition in 0..2 {
            drop(consumer(&url, partition).await);
        }
    }

    async fn write_malformed(&mut self, partition: u32) -> Vec<Bytes> {
        let url = self.0.lock().url();
        let (_connection, channel) = channel(&url).await;
        let queue = format!("conformance.{partition}");
        let mut number = FieldTable::default();
        number.insert("count".into(), AMQPValue::LongInt(7));
        let all = [
            (BasicProperties::default(), "no id"),
            (BasicProperties::default().with_message_id("an id with spaces".into()), "bad id"),
            (BasicProperties::default().with_message_id("m".into()).with_headers(number), "bad header"),
        ];
        channel.confirm_select(lapin::options::ConfirmSelectOptions::default()).await.unwrap();
        for (properties, payload) in all.clone() {
            let (queue, options) = (queue.as_str().into(), BasicPublishOptions::default());
            let sent = channel.basic_publish("".into(), queue, options, payload.as_bytes(), properties);
            sent.await.unwrap().await.unwrap();
        }
        all.map(|(_, payload)| Bytes::from(payload)).into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_and_a_source_conform() {
    for suite in ["publisher", "source"] {
        let Some(server) = RabbitMq::start() else { return };
        let streams = RabbitMqStreams::new(&server.url(), "conformance", 2).unwrap();
        let publisher = RabbitMqPublisher::open(&streams).await.unwrap();
        server.until_streams_are_saved();
        let mut broker = KilledRabbit(Killed::new(server));
        if suite == "publisher" {
            conformance::publisher(&publisher, &mut broker).await;
        } else {
            let source = RabbitMqSource::new(&streams);
            conformance::source(&source, &publisher, &mut broker).await;
            crate::suites::check_numbers(&source, &publisher).await;
            assert_eq!(source.gaps(), 0, "nothing was removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_clearly() {
    let Some(server) = RabbitMq::shared() else { return };
    let url = server.url();
    let streams = RabbitMqStreams::new(&url, "fits", 1).unwrap().with_max_age(Duration::from_secs(3600));
    let publisher = RabbitMqPublisher::open(&streams).await.unwrap();
    // The server compares the settings of the stream.
    let source = RabbitMqSource::new(&streams.clone().with_max_age(Duration::from_secs(7200)));
    let error = source.check(None).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unfit && error.to_string().contains("x-max-age"), "{error}");
    let source = RabbitMqSource::new(&streams);
    let error = source.check(Some(Duration::from_secs(60))).await.unwrap_err();
    assert!(error.to_string().contains("run an effect twice"), "{error}");
    source.check(Some(Duration::from_secs(3600))).await.unwrap();
    // A queue that is no stream.
    let (_connection, classic) = channel(&url).await;
    let declare =
        classic.queue_declare("classic.0".into(), QueueDeclareOptions::durable(), FieldTable::default());
    declare.await.unwrap();
    let error =
        RabbitMqPublisher::open(&RabbitMqStreams::new(&url, "classic", 1).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("x-queue-type"), "{error}");
    // A stream that was made again ends before the position.
    publisher.publish(&[Outgoing::new(Message::new("t", "1"), 1)]).await.pop().unwrap().unwrap();
    let error = source.open(0, 50).await.map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::Foreign && error.to_string().contains("made again"), "{error}");
    // A stranger.
    let stranger = url.replace("guest:guest", "guest:wrong");
    let error =
        RabbitMqPublisher::open(&RabbitMqStreams::new(&stranger, "fits", 1).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("ACCESS_REFUSED") && !error.to_string().contains("wrong"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_takes_messages_by_topic_and_returns_those_without_a_queue() {
    let Some(server) = RabbitMq::shared() else { return };
    let url = server.url();
    let (_connection, queues) = channel(&url).await;
    queues
        .queue_declare("placed".into(), QueueDeclareOptions::durable(), FieldTable::default())
        .await
        .unwrap();
    let bind = lapin::options::QueueBindOptions::default();
    queues
        .queue_bind("placed".into(), "amq.topic".into(), "orders.*".into(), bind, FieldTable::default())
        .await
        .unwrap();
    let error = RabbitMqPublisher::open_exchange(&url, "absent").await.unwrap_err();
    assert!(error.to_string().contains("no exchange `absent`"), "{error}");
    let publisher = RabbitMqPublisher::open_exchange(&url, "amq.topic").await.unwrap();
    let batch =
        ["orders.placed", "nowhere"].map(|topic| Outgoing::new(Message::new(topic, "81").with_id("m-1"), 1));
    let results = publisher.publish(&batch).await;
    assert!(results[0].is_ok(), "the other one is not held up: {:?}", results[0]);
    let error = results[1].as_ref().unwrap_err();
    assert!(error.to_string().contains("no queue"), "{error}");
    let got =
        queues.basic_get("placed".into(), lapin::options::BasicGetOptions::default()).await.unwrap().unwrap();
    assert_eq!(got.properties.message_id().as_ref().unwrap().as_str(), "m-1");
    assert_eq!(got.data, b"81");
}
