//! A broker that refuses: a missing stream, a full one, another token, a full disk. The messages stay in the outbox, the
//! failures are counted, and when the cause is gone everything is published.

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use onceward_flows::{NatsPublisher, Outbox, Publisher, RabbitMqPublisher, RelayOptions};

use super::publishing::{Running, commit, numbered, options};
use crate::servers::{Nats, RabbitMq};
use crate::support::Database;

const KEYS: usize = 3;

fn impatient() -> RelayOptions {
    let mut options = options();
    options.publish_timeout = Duration::from_secs(1);
    options
}

/// Commits messages, waits until the broker has refused some of them, fixes it, and waits until it has taken all.
async fn refused_then_fixed(publisher: impl Publisher + 'static, fix: impl Future<Output = ()>) {
    let Some(database) = Database::fresh().await else { return };
    let outbox = Outbox::new();
    let running = Running::start_with(&database.tables, &outbox, publisher, impatient());
    commit(&database, &outbox, numbered(KEYS, 2)).await;
    while running.relay.counts().failed < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let left = database.tables.backlog().await.unwrap().messages;
    assert!(left >= KEYS as u64, "{left}: what was refused stays");
    assert!(running.relay.counts().published <= KEYS as u64);
    fix.await;
    running.relay.drained().await.unwrap();
    assert_eq!(running.relay.counts().published, KEYS as u64 * 2);
    running.stop().await;
}

fn config(name: &str) -> stream::Config {
    stream::Config { name: name.to_owned(), subjects: vec![format!("{name}.>")], ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_stream() {
    let Some(server) = Nats::shared() else { return };
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let publisher = NatsPublisher::new(context.clone(), "made-later", 1).unwrap();
    let fix = async { drop(context.create_stream(config("made-later")).await.unwrap()) };
    refused_then_fixed(publisher, fix).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream() {
    let Some(server) = Nats::shared() else { return };
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let full =
        stream::Config { max_messages: 2, discard: stream::DiscardPolicy::New, ..config("relay-full") };
    context.create_stream(full).await.unwrap();
    let publisher = NatsPublisher::new(context.clone(), "relay-full", 1).unwrap();
    let fix = async { drop(context.update_stream(config("relay-full")).await.unwrap()) };
    refused_then_fixed(publisher, fix).await;
}

/// The server gets another token, and then the old one again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_token() {
    let Some(mut server) = Nats::start() else { return };
    server.restart_with(&["--auth", "token"]);
    let options = async_nats::ConnectOptions::with_token("token".to_owned());
    let context = jetstream::new(options.connect(server.url()).await.unwrap());
    context.create_stream(config("token")).await.unwrap();
    let publisher = NatsPublisher::new(context, "token", 1).unwrap();
    server.restart_with(&["--auth", "another"]);
    refused_then_fixed(publisher, async { server.restart_with(&["--auth", "token"]) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk() {
    let Some(server) = RabbitMq::start() else { return };
    let streams = onceward_flows::RabbitMqStreams::new(&server.url(), "disk", 2).unwrap();
    let publisher = RabbitMqPublisher::open(&streams).await.unwrap();
    // More than any disk has free: the server blocks those that publish.
    server.control(&["set_disk_free_limit", "1000000GB"]);
    refused_then_fixed(publisher, async { drop(server.control(&["set_disk_free_limit", "1MB"])) }).await;
}
