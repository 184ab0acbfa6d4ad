//! Redis Streams as a broker.

use bytes::Bytes;
use onceward::ErrorKind;
use onceward_flows::conformance::{self, Broker};
use onceward_flows::{Message, Outgoing, Publisher, RedisPublisher, RedisSource, Source};
use redis::{Value, cmd};

use crate::servers::Redis;
use crate::support::Killed;

fn url(server: &Redis) -> String {
    format!("redis://127.0.0.1:{}/0", server.port())
}

/// A server of its own, for the suites that kill it.
struct KilledRedis(Killed<Redis>);

impl KilledRedis {
    async fn connection(&self) -> redis::aio::MultiplexedConnection {
        let url = url(&self.0.lock());
        redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
    }
}

impl Broker for KilledRedis {
    async fn read(&self) -> onceward::Result<Vec<Message>> {
        let mut connection = self.connection().await;
        let mut messages = Vec::new();
        for partition in 0..4 {
            let mut range = cmd("XRANGE");
            range.arg(format!("conformance.{partition}")).arg("-").arg("+");
            let entries: Vec<(String, Vec<(String, Value)>)> =
                range.query_async(&mut connection).await.unwrap();
            for (_, fields) in entries {
                let text = |value: &Value| redis::from_redis_value_ref::<String>(value).unwrap();
                let mut payload = Vec::new();
                let (mut id, mut topic) = (String::new(), String::new());
                let (mut key, mut headers) = (None, Vec::new());
                for (name, value) in &fields {
                    match name.as_str() {
                        "id" => id = text(value),
                        "topic" => topic = text(value),
                        "key" => key = Some(text(value)),
                        "payload" => payload = redis::from_redis_value_ref(value).unwrap(),
                        "position" => {}
                        header => {
                            headers.push((header.strip_prefix("header.").unwrap().to_owned(), text(value)));
                        }
                    }
                }
                let mut message = Message::new(topic, payload).with_id(id);
                if let Some(key) = key {
                    message = message.with_ordering_key(key);
                }
                for (name, value) in headers {
                    message = message.with_header(name, value);
                }
                messages.push(message);
            }
        }
        Ok(messages)
    }

    async fn kill(&mut self) {
        self.0.with(Redis::kill).await;
    }

    async fn start(&mut self) {
        self.0.with(Redis::up).await;
    }

    async fn write_malformed(&mut self, partition: u32) -> Vec<Bytes> {
        let mut connection = self.connection().await;
        let place = format!("conformance.{partition}");
        let fields: [&[(&str, &[u8])]; 4] = [
            &[("payload", b"no id")],
            &[("id", b"an id with spaces"), ("payload", b"bad id")],
            &[("id", b"m"), ("topic", b"t"), ("header.a", b"\xff"), ("payload", b"bad header")],
            &[("something", b"else")],
        ];
        for entry in fields {
            let mut add = cmd("XADD");
            add.arg(&place).arg("*");
            for (name, value) in entry {
                add.arg(*name).arg(*value);
            }
            add.query_async::<String>(&mut connection).await.unwrap();
        }
        ["no id", "bad id", "bad header", ""].map(Bytes::from).into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_and_a_source_conform() {
    for suite in ["publisher", "source"] {
        let Some(server) = Redis::start() else { return };
        let url = url(&server);
        let publisher = RedisPublisher::open(&url, "conformance", 4).await.unwrap();
        let mut broker = KilledRedis(Killed::new(server));
        if suite == "publisher" {
            conformance::publisher(&publisher, &mut broker).await;
        } else {
            let source = RedisSource::new(&url, "conformance", 4).unwrap();
            conformance::source(&source, &publisher, &mut broker).await;
            crate::suites::check_numbers(&source, &publisher).await;
            assert_eq!(source.gaps(), 0, "nothing was trimmed");
        }
    }
}

fn numbered(number: i64) -> [Outgoing; 1] {
    [Outgoing::new(Message::new("t", number.to_string()), number)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_trimmed_behind_the_position_are_noticed() {
    let Some(server) = Redis::shared() else { return };
    let publisher = RedisPublisher::open(&url(server), "trimmed", 1).await.unwrap();
    let source = RedisSource::new(&url(server), "trimmed", 1).unwrap();
    for number in 1..=5 {
        publisher.publish(&numbered(number)).await.pop().unwrap().unwrap();
    }
    let mut reader = source.open(0, 0).await.unwrap();
    let second = [reader.next().await.unwrap(), reader.next().await.unwrap()][1].position;
    source.open(0, second).await.map(drop).unwrap();
    server.cli(&["XTRIM", "trimmed.0", "MAXLEN", "4"]);
    source.open(0, second).await.map(drop).unwrap();
    assert_eq!(source.gaps(), 0, "what was handled may go");
    server.cli(&["XTRIM", "trimmed.0", "MAXLEN", "2"]);
    let delivery = source.open(0, second).await.unwrap().next().await.unwrap();
    assert_eq!(
        (&delivery.message.payload()[..], source.gaps()),
        (&b"4"[..], 1),
        "3 was not handled, and is gone"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loses_confirmed_messages_is_refused() {
    let Some(server) = Redis::start_with(&["--appendonly", "no"]) else { return };
    let error = RedisPublisher::open(&url(&server), "p", 1).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unfit && error.to_string().contains("appendonly"), "{error}");
    RedisPublisher::open_unsaved(&url(&server), "p", 1).await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let error = RedisPublisher::open_unsaved(&url(&server), "p", 1).await.unwrap_err();
    assert!(error.to_string().contains("noeviction"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_or_wants_a_password_refuses_clearly() {
    let Some(server) = Redis::start() else { return };
    let publisher = RedisPublisher::open(&url(&server), "full", 1).await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = publisher.publish(&numbered(1)).await.pop().unwrap().unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    publisher.publish(&numbered(1)).await.pop().unwrap().unwrap();
    server.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    let error = RedisPublisher::open(&url(&server), "full", 1).await.unwrap_err();
    assert!(error.to_string().contains("NOAUTH"), "{error}");
    assert!(RedisPublisher::open("gopher://x", "full", 1).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_with_other_partitions_is_refused() {
    let Some(server) = Redis::shared() else { return };
    let publisher = RedisPublisher::open(&url(server), "parts", 4).await.unwrap();
    for number in 1..=40 {
        publisher.publish(&numbered(number)).await.pop().unwrap().unwrap();
    }
    let error = RedisSource::new(&url(server), "parts", 2).unwrap().check(None).await.unwrap_err();
    assert!(error.to_string().contains("none of 2 partitions"), "{error}");
    RedisSource::new(&url(server), "parts", 4).unwrap().check(None).await.unwrap();
}
