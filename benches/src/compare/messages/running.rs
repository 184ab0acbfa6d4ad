//! A relay that keeps running while messages come, as in a service. One that has just started reads its lanes from their
//! beginning, over all rows that are dead and still there; that is another measurement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward_flows::{FlowTables, Outbox, Relay};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::{Counted, Nowhere, by_hand, insertion};

/// Messages per second of a steady load.
pub const LOAD: usize = 4_000;
/// They are added this often.
const PERIOD: Duration = Duration::from_millis(100);

/// The relay, and a connection that adds messages for it.
pub struct RunningRelay<'a> {
    runtime: &'a Runtime,
    publisher: Counted<Nowhere>,
    outbox: Outbox,
    client: Client,
    added: usize,
    stop: Arc<Notify>,
    running: JoinHandle<()>,
}

impl<'a> RunningRelay<'a> {
    pub fn start(runtime: &'a Runtime, tables: &FlowTables, url: &str) -> Self {
        let (outbox, publisher) = (Outbox::new(), Counted::new(Nowhere::default()));
        let relay = Relay::new(tables.clone(), &outbox, publisher.clone());
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let running = runtime.spawn(async move { relay.run_until(stopped.notified()).await.unwrap() });
        let client = runtime.block_on(by_hand::connect(url));
        Self { runtime, publisher, outbox, client, added: 0, stop, running }
    }

    /// Adds messages in one transaction, and returns how many per second were published from its commit on.
    pub fn empty(&mut self, count: usize) -> f64 {
        self.runtime.block_on(async {
            self.client.batch_execute(&insertion(count)).await.unwrap();
            let start = Instant::now();
            self.outbox.wake_relays();
            self.added += count;
            self.publisher.until(self.added).await;
            count as f64 / start.elapsed().as_secs_f64()
        })
    }

    /// Adds messages at a steady rate, until all of them are published.
    pub fn steady(&mut self, length: Duration) {
        let insert = insertion(LOAD / 10);
        self.runtime.block_on(async {
            let (start, mut next) = (Instant::now(), tokio::time::Instant::now());
            while start.elapsed() < length {
                tokio::time::sleep_until(next).await;
                next += PERIOD;
                self.client.batch_execute(&insert).await.unwrap();
                self.added += LOAD / 10;
            }
            self.publisher.until(self.added).await;
        });
    }

    /// Stops it when all is published.
    pub fn stop(self) {
        self.stop.notify_one();
        self.runtime.block_on(self.running).unwrap();
        assert_eq!(self.publisher.count(), self.added, "each was published once");
    }
}
