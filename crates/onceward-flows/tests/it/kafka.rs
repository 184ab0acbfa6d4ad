//! Kafka as a broker, against the mock cluster of librdkafka: three brokers in this process that keep everything in memory.
//!
//! What that proves: the wire, the layout, order, positions, and that a broker that goes down and comes back is survived.
//! What it does not: that a confirmed message survives a crash, or anything about the real brokers' disks and elections.

use bytes::Bytes;
use onceward_flows::conformance::{self, Broker};
use onceward_flows::{KafkaPublisher, KafkaSource, Message, Source};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use std::time::Duration;

const PARTITIONS: i32 = 4;
const BROKERS: i32 = 3;
const WAIT: Duration = Duration::from_secs(10);

struct Mock(MockCluster<'static, DefaultProducerContext>);

impl Mock {
    fn start() -> Self {
        let cluster = MockCluster::new(BROKERS).unwrap();
        cluster.create_topic("conformance", PARTITIONS, BROKERS).unwrap();
        Self(cluster)
    }
}

impl Broker for Mock {
    async fn read(&self) -> onceward::Result<Vec<Message>> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", self.0.bootstrap_servers())
            .set("group.id", "test")
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut messages = Vec::new();
        for partition in 0..PARTITIONS {
            let (low, high) = consumer.fetch_watermarks("conformance", partition, WAIT).unwrap();
            let mut list = TopicPartitionList::new();
            list.add_partition_offset("conformance", partition, Offset::Offset(low)).unwrap();
            consumer.assign(&list).unwrap();
            let mut next = low;
            while next < high {
                let Some(message) = consumer.poll(WAIT) else { panic!("nothing at {next} of {high}") };
                let message = message.unwrap();
                next = message.offset() + 1;
                let (mut id, mut topic, mut key, mut headers) =
                    (String::new(), String::new(), None, Vec::new());
                for header in message.headers().unwrap().iter() {
                    let value = String::from_utf8(header.value.unwrap_or_default().to_vec()).unwrap();
                    match header.key {
                        "Onceward-Message-Id" => id = value,
                        "Onceward-Topic" => topic = value,
                        "Onceward-Ordering-Key" => key = Some(value),
                        "Onceward-Position" => {}
                        name => headers.push((name.to_owned(), value)),
                    }
                }
                let mut found =
                    Message::new(topic, message.payload().unwrap_or_default().to_vec()).with_id(id);
                if let Some(key) = key {
                    found = found.with_ordering_key(key);
                }
                for (name, value) in headers {
                    found = found.with_header(name, value);
                }
                messages.push(found);
            }
        }
        Ok(messages)
    }

    async fn kill(&mut self) {
        (1..=BROKERS).for_each(|broker| self.0.broker_down(broker).unwrap());
    }

    async fn start(&mut self) {
        (1..=BROKERS).for_each(|broker| self.0.broker_up(broker).unwrap());
    }

    async fn write_malformed(&mut self, partition: u32) -> Vec<Bytes> {
        let producer: FutureProducer =
            ClientConfig::new().set("bootstrap.servers", self.0.bootstrap_servers()).create().unwrap();
        let bad_id = OwnedHeaders::new().insert(Header { key: "Onceward-Message-Id", value: Some("a b") });
        let bytes = OwnedHeaders::new().insert(Header { key: "a", value: Some(&[0xff_u8][..]) });
        let all = [(OwnedHeaders::new(), "no id"), (bad_id, "bad id"), (bytes, "bad header")];
        for (headers, payload) in all.clone() {
            let record = FutureRecord::<str, str>::to("conformance")
                .partition(i32::try_from(partition).unwrap())
                .payload(payload)
                .headers(headers);
            producer.send(record, WAIT).await.unwrap();
        }
        all.map(|(_, payload)| Bytes::from(payload)).into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_and_a_source_conform() {
    for suite in ["publisher", "source"] {
        let mut broker = Mock::start();
        let servers = broker.0.bootstrap_servers();
        let publisher = KafkaPublisher::open(&servers, "conformance", 4).await.unwrap();
        if suite == "publisher" {
            conformance::publisher(&publisher, &mut broker).await;
        } else {
            let source = KafkaSource::new(&servers, "conformance", 4).unwrap();
            conformance::source(&source, &publisher, &mut broker).await;
            crate::suites::check_numbers(&source, &publisher).await;
            assert_eq!(source.gaps(), 0, "nothing was removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_number_of_partitions_and_a_topic_made_again_are_refused() {
    let broker = Mock::start();
    let servers = broker.0.bootstrap_servers();
    let error = KafkaPublisher::open(&servers, "conformance", 3).await.unwrap_err();
    assert!(error.to_string().contains("has 4 partitions and not 3"), "{error}");
    let source = KafkaSource::new(&servers, "conformance", 3).unwrap();
    assert!(source.check(None).await.is_err());
    let source = KafkaSource::new(&servers, "conformance", 4).unwrap();
    source.check(None).await.unwrap();
    // The mock does not describe its topics, which is no reason to refuse them.
    source.check(Some(Duration::from_secs(60))).await.unwrap();
    let error = source.open(0, 50).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("made again"), "{error}");
}
