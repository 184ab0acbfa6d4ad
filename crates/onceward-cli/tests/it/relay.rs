//! `onceward relay` as a process, from a real PostgreSQL to real brokers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::process::{eventually, onceward};
use crate::servers::{Postgres, Redis};

/// A relay; it ends with this.
struct Relay(Child);

impl Relay {
    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    fn start(store: &str, to: &str) -> Self {
        let words = ["relay", "--store", store, "--to", to, "--prefix", "shop", "--partitions", "4"];
        Self(onceward(&words).args(["--report-every", "0"]).stderr(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn add(server: &Postgres, name: &str, from: u32, to: u32) {
    let insert = format!(
        "INSERT INTO onceward_outbox (lane, id, topic, ordering_key, headers, payload)
         SELECT 192, 'm-' || n, 'orders.placed', 'a', '{{\"trace\":\"7\"}}', convert_to(n::text, 'UTF8')
         FROM generate_series({from}, {to}) AS n"
    );
    server.sql(name, &insert);
}

fn waiting(server: &Postgres, name: &str) -> String {
    server.sql(name, "SELECT count(*) FROM onceward_outbox")
}

/// A database with the tables for messages.
fn outbox(server: &Postgres) -> (String, String) {
    let name = server.fresh();
    let url = server.url(&name);
    assert!(onceward(&["migrate", "--messages", "--store", &url]).status().unwrap().success());
    (name, url)
}

fn stop(mut relay: Relay) {
    let told = Command::new("kill").args(["-TERM", &relay.0.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert!(relay.0.wait().unwrap().success(), "a stop is no failure");
}

#[test]
fn messages_are_published_to_redis_and_counted() {
    let (Some(server), Some(redis)) = (Postgres::shared(), Redis::start()) else { return };
    let (name, url) = outbox(server);
    add(server, &name, 1, 50);
    let to = format!("redis://127.0.0.1:{}/0", redis.port());
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let words = ["relay", "--store", &url, "--to", &to, "--prefix", "shop", "--partitions", "4"];
    let metrics_words = ["--metrics".to_owned(), format!("localhost:{}", metrics.port())];
    let relay = Relay(onceward(&words).args(metrics_words).stderr(Stdio::piped()).spawn().unwrap());
    eventually("everything is published", || (waiting(server, &name) == "0").then_some(()));
    // Lane 192 of 4 partitions is in the first one.
    assert_eq!(redis.cli(&["XLEN", "shop.0"]), "50");
    let said = eventually("the metrics", || {
        let mut stream = TcpStream::connect(metrics).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said.contains("onceward_relay_published_total 50").then_some(said)
    });
    for line in ["onceward_outbox_up 1", "onceward_outbox_messages 0", "onceward_outbox_oldest_seconds 0.000"]
    {
        assert!(said.contains(line), "{said}");
    }
    stop(relay);
}

#[test]
fn a_redis_that_keeps_nothing_is_refused_unless_it_is_accepted() {
    let (Some(server), Some(redis)) = (Postgres::shared(), Redis::start_with(&[])) else { return };
    let (name, url) = outbox(server);
    let to = format!("redis://127.0.0.1:{}/0", redis.port());
    let ended = onceward(&["relay", "--store", &url, "--to", &to]).output().unwrap();
    let text = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(2) && text.contains("appendonly"), "{text}");
    add(server, &name, 1, 2);
    let words = ["relay", "--store", &url, "--to", &to, "--accept-unsaved"];
    let relay = Relay(onceward(&words).stderr(Stdio::piped()).spawn().unwrap());
    eventually("everything is published", || (waiting(server, &name) == "0").then_some(()));
    stop(relay);
}

#[test]
fn messages_are_posted_with_their_id_as_key_and_a_signature() {
    let Some(server) = Postgres::shared() else { return };
    let (name, url) = outbox(server);
    add(server, &name, 7, 7);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/hooks", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    let words = ["relay", "--store", &url, "--to", &to, "--webhook-secret", secret.to_str().unwrap()];
    let relay = Relay(onceward(&words).stderr(Stdio::piped()).spawn().unwrap());
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).unwrap();
    }
    let mut body = [0];
    reader.read_exact(&mut body).unwrap();
    assert_eq!(waiting(server, &name), "1", "nothing is removed before it is confirmed");
    reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /hooks ") && body == *b"7", "{head}");
    for field in [
        "idempotency-key: \"m-7\"",
        "webhook-id: m-7",
        "webhook-signature: v1,",
        "onceward-topic: orders.placed",
    ] {
        assert!(head.contains(field), "{field} is not in {head}");
    }
    eventually("what was confirmed is removed", || (waiting(server, &name) == "0").then_some(()));
    stop(relay);
}

#[test]
fn a_broker_that_is_not_in_this_build_is_named_with_its_feature() {
    let Some(server) = Postgres::shared() else { return };
    let (_, url) = outbox(server);
    let failed = |to: &str| {
        let ended = onceward(&["relay", "--store", &url, "--to", to]).output().unwrap();
        assert_eq!(ended.status.code(), Some(2));
        String::from_utf8(ended.stderr).unwrap()
    };
    let absent = [
        ("nats://127.0.0.1:1", "nats", cfg!(feature = "nats")),
        ("amqp://127.0.0.1:1", "rabbitmq", cfg!(feature = "rabbitmq")),
        ("kafka://127.0.0.1:1", "kafka", cfg!(feature = "kafka")),
    ];
    for (to, feature, _) in absent.into_iter().filter(|(.., is_built)| !is_built) {
        let text = failed(to);
        assert!(text.contains(&format!("--features {feature}")), "{text}");
    }
    let text = failed("gopher://localhost");
    assert!(text.contains("nats://host:4222") && text.contains("https://host/path"), "{text}");
}

#[cfg(feature = "rabbitmq")]
#[test]
fn messages_are_published_to_rabbitmq_and_removed_until_it_is_stopped() {
    use crate::servers::RabbitMq;

    let (Some(server), Some(rabbitmq)) = (Postgres::shared(), RabbitMq::start()) else { return };
    let (name, url) = outbox(server);
    add(server, &name, 1, 50);
    let relay = Relay::start(&url, &rabbitmq.url());
    eventually("the first half", || (waiting(server, &name) == "0").then_some(()));
    drop(relay);
    add(server, &name, 51, 100);
    let relay = Relay::start(&url, &rabbitmq.url());
    eventually("the second half", || (waiting(server, &name) == "0").then_some(()));
    // Lane 192 of 4 partitions is in the first one. Copies are kept: the first relay ended without warning.
    eventually("all of them in the stream of their partition", || {
        let said = rabbitmq.control(&["list_queues", "--no-table-headers", "name", "type", "messages"]);
        let of_queue = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(&format!("{name}\tstream\t")))?;
            line.rsplit('\t').next()?.parse::<u64>().ok()
        };
        let others = ["shop.1", "shop.2", "shop.3"].map(of_queue);
        (of_queue("shop.0") >= Some(100) && others == [Some(0); 3]).then_some(())
    });
    stop(relay);
    let owned = "SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL";
    assert_eq!(server.sql(&name, owned), "0", "another relay can go on at once");
}

#[cfg(feature = "nats")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_published_to_nats_and_removed_until_it_is_stopped() {
    use std::time::Duration;

    use async_nats::jetstream::{self, stream};

    use crate::servers::Nats;

    let (Some(server), Some(nats)) = (Postgres::shared(), Nats::shared()) else { return };
    let name = server.fresh();
    let url = server.url(&name);
    let failed = |to: &str| {
        let ended = onceward(&["relay", "--store", &url, "--to", to]).output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let (code, text) = failed(&nats.url());
    assert!(code == Some(2) && text.contains("onceward migrate --messages"), "{text}");
    assert!(onceward(&["migrate", "--messages", "--store", &url]).status().unwrap().success());
    let (code, text) = failed("gopher://localhost");
    assert!(
        code == Some(2) && text.contains("nats://host:4222") && text.contains("https://host/path"),
        "{text}"
    );
    let (code, text) = failed("nats://127.0.0.1:1");
    assert!(code == Some(2) && text.contains("cannot connect to NATS"), "{text}");

    let context = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let config = stream::Config {
        name: "shop".to_owned(),
        subjects: vec!["shop.>".to_owned()],
        max_age: Duration::from_hours(1),
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    // Half of it is there before the relay, and the relay is killed in between.
    add(server, &name, 1, 50);
    let relay = Relay::start(&url, &nats.url());
    eventually("the first half", || (waiting(server, &name) == "0").then_some(()));
    drop(relay);
    add(server, &name, 51, 100);
    let mut relay = Relay::start(&url, &nats.url());
    eventually("the second half", || (waiting(server, &name) == "0").then_some(()));
    assert_eq!(server.sql(&name, "SELECT count(*) > 0 FROM onceward_parts WHERE owner IS NOT NULL"), "t");

    let stream = context.get_stream("shop").await.unwrap();
    let count = stream.cached_info().state.messages;
    assert_eq!(count, 100, "NATS drops a copy that has the same id");
    for number in 1..=count {
        let message = stream.get_raw_message(number).await.unwrap();
        // Lane 192 of 4 partitions is in the first one.
        assert_eq!(message.subject.as_str(), "shop.0.orders.placed");
        assert_eq!(&*message.payload, number.to_string().as_bytes(), "in the order of the key");
        assert_eq!(message.headers.get("Nats-Msg-Id").unwrap().as_str(), format!("m-{number}"));
        assert_eq!(message.headers.get("trace").unwrap().as_str(), "7");
    }
    let told = Command::new("kill").args(["-TERM", &relay.0.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert!(relay.0.wait().unwrap().success(), "a stop is no failure");
    let said = BufReader::new(relay.0.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(said.contains("publishing from the outbox"), "{said}");
    let owned = "SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL";
    assert_eq!(server.sql(&name, owned), "0", "another relay can go on at once");
}
