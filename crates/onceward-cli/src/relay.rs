//! `onceward relay`: publishes the messages of an outbox.

use std::process::ExitCode;
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use onceward_flows::postgres::FlowTables;
use onceward_flows::{NatsPublisher, Outbox, Relay};
use onceward_stores::sql::Migrations;
use tokio::signal::unix::{SignalKind, signal};

const AFTER_HELP: &str = "\
Example:
  onceward relay --store postgres://app@db/orders --to nats://localhost:4222 --prefix shop --partitions 16

Any number of relays may run at the same time, also inside of services: they share the work.

Exit code:
  0  stopped by SIGTERM or SIGINT; what was in flight is published
  2  it cannot start; the message says why";

/// Publish the messages of an outbox to NATS JetStream.
///
/// A message goes to the subject PREFIX.PARTITION.TOPIC with its id as Nats-Msg-Id. There must be a stream that takes
/// PREFIX.>. What the broker has confirmed is removed from the outbox.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// The PostgreSQL database of the outbox.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true)]
    store: String,

    /// The broker.
    #[arg(long, value_name = "URL")]
    to: String,

    /// The first word of the subjects.
    #[arg(long, value_name = "WORD", default_value = "onceward")]
    prefix: String,

    /// How many partitions there are; the same as the consumers'.
    #[arg(long, value_name = "N", default_value_t = 16)]
    partitions: u32,

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
        if !self.to.starts_with("nats://") && !self.to.starts_with("tls://") {
            let detail = "this build publishes to NATS only; the address looks like nats://host:4222";
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        let tables = FlowTables::open_with(&self.store, Migrations::Require).await?;
        let client = async_nats::connect(&self.to)
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot connect to NATS").caused_by(error))?;
        let publisher =
            NatsPublisher::new(async_nats::jetstream::new(client), &self.prefix, self.partitions)?;
        let relay = Relay::new(tables.clone(), &Outbox::new(), publisher);
        let caught = |kind| {
            signal(kind).map_err(|error| Error::new(ErrorKind::Invalid, format!("no signals: {error}")))
        };
        let (mut terminate, mut interrupt) =
            (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
        let stop = async {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        };
        eprintln!("onceward: publishing from the outbox to {}", self.prefix);
        tokio::select! {
            ended = relay.run_until(stop) => ended,
            never = self.report(&relay, &tables) => match never {},
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
