//! `onceward relay` as a process, from a real PostgreSQL to a real NATS.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::jetstream::{self, stream};

use crate::process::{eventually, onceward};
use crate::servers::{Nats, Postgres};

/// A relay; it ends with this.
struct Relay(Child);

impl Relay {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_published_and_removed_until_it_is_stopped() {
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
    assert!(code == Some(2) && text.contains("nats://host:4222"), "{text}");
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
