//! `onceward relay`: publishes the messages of an outbox.

mod brokers;
mod metrics;

use std::process::ExitCode;
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use onceward_flows::{FlowTables, Outbox, Relay};
use onceward_stores::sql::Migrations;
use tokio::signal::unix::{SignalKind, signal};

use crate::address::ListenAddress;
use crate::help;

const AFTER_HELP: &str = "\
Example:
  onceward relay --store postgres://app@db/orders --to nats://localhost:4222 --prefix shop --partitions 16
  onceward relay --store postgres://app@db/orders --to https://shop.example/hooks --webhook-secret secret.txt

Brokers, and where a message goes:
  nats://host:4222                    the subject PREFIX.PARTITION.TOPIC; a stream must take PREFIX.>
  redis://host:6379/0                 the stream PREFIX.PARTITION
  amqp://user:password@host:5672/%2f  the stream queue PREFIX.PARTITION, or --exchange
  kafka://host:9092                   a partition of the topic PREFIX
  https://host/path                   a POST with the message id as Idempotency-Key
NATS, RabbitMQ and Kafka are features of the build: nats, rabbitmq, kafka.

Any number of relays may run at the same time, also inside of services: they share the work.

Exit code:
  0  stopped by SIGTERM or SIGINT; what was in flight is published
  2  it cannot start; the message says why";

/// Publish the messages of an outbox to a broker.
///
/// Every message goes with its id, by which consumers recognise copies. What the broker has confirmed is removed from the
/// outbox.
#[derive(clap::Args)]
#[command(after_long_help = help::with_databases(AFTER_HELP))]
pub struct Args {
    /// The database of the outbox.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true)]
    store: String,

    #[command(flatten)]
    to: brokers::Destination,

    /// Serve metrics for Prometheus at this address, under /metrics; `:9100` is all interfaces.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<ListenAddress>,

    /// Print numbers to standard error this often, in seconds; 0 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    report_every: u64,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        match self.relay().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("onceward: {error}");
                ExitCode::from(2)
            }
        }
    }

    async fn relay(&self) -> Result<()> {
        let tables = FlowTables::open_with(&self.store, Migrations::Require).await?;
        let relay = Relay::new(tables.clone(), &Outbox::new(), self.to.open().await?);
        let listener = match self.metrics {
            Some(ListenAddress(address)) => {
                Some(tokio::net::TcpListener::bind(address).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, format!("cannot listen on {address}: {error}"))
                })?)
            }
            None => None,
        };
        let caught = |kind| {
            signal(kind).map_err(|error| Error::new(ErrorKind::Invalid, format!("no signals: {error}")))
        };
        let (mut terminate, mut interrupt) =
            (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
        let stop = async {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        };
        eprintln!("onceward: publishing from the outbox to {}", self.to.shown());
        let serve = async {
            match listener {
                Some(listener) => {
                    let router = metrics::router(&relay, &tables);
                    crate::admin::serve(listener, router, std::future::pending()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = relay.run_until(stop) => ended,
            never = self.report(&relay, &tables) => match never {},
            () = serve => Ok(()),
        }
    }

    async fn report(&self, relay: &Relay, tables: &FlowTables) -> std::convert::Infallible {
        loop {
            if self.report_every == 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_secs(self.report_every)).await;
            let counts = relay.counts();
            if let Ok(backlog) = tables.backlog().await {
                let age = backlog.oldest.unwrap_or_default();
                eprintln!(
                    "onceward: {} published, {} refused; {} waiting, the oldest for {age:.1?}",
                    counts.published, counts.failed, backlog.messages
                );
            }
        }
    }
}
