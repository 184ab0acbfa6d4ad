//! The outbox table itself as a source: a consumer in the database of the service, without a broker. A message is removed
//! when it is handled, so there is one consumer, and no relay.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;

use onceward::Result;

use super::{Delivery, HandledMessage, Reader, Source, SourceFuture};
use crate::lane::LANES;
use crate::outbox::{AddedLanes, Outbox};
use crate::tables::FlowTables;

const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(200);
/// Rows of one read.
const ROWS: usize = 100;

/// Reads the outbox of a database. It must be the only reader: it is refused while there is a relay or a consumer of
/// another name.
#[derive(Clone, Debug)]
pub struct OutboxSource {
    tables: FlowTables,
    outbox: Outbox,
    partitions: u32,
}

impl OutboxSource {
    /// Reads the outbox in `partitions` (1 to 1,024) partitions, which can be shared by that many processes.
    pub fn new(tables: FlowTables, outbox: &Outbox, partitions: u32) -> Self {
        Self { tables, outbox: outbox.clone(), partitions: partitions.clamp(1, LANES) }
    }
}

impl Source for OutboxSource {
    fn name(&self) -> &'static str {
        "outbox"
    }

    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn takes_from_outbox(&self) -> bool {
        true
    }

    fn check(&self, _: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Always from the start: what was handled is removed.
    fn open(&self, partition: u32, _: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        let lanes = (0..LANES).filter(|lane| lane % self.partitions == partition);
        let reader = OutboxReader {
            tables: self.tables.clone(),
            added: self.outbox.listen(),
            cursors: lanes.map(|lane| (lane, 0)).collect(),
            read: VecDeque::new(),
            pause: POLL_MIN,
        };
        Box::pin(std::future::ready(Ok(Box::new(reader) as Box<dyn Reader>)))
    }

    fn handled<'a>(&'a self, messages: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let places: Vec<(u32, i64)> =
                messages.iter().map(|handled| (handled.lane, handled.position)).collect();
            self.tables.remove_and_read(&places, &[], 0, 0).await.map(drop)
        })
    }
}

struct OutboxReader {
    tables: FlowTables,
    added: AddedLanes,
    cursors: HashMap<u32, i64>,
    read: VecDeque<Delivery>,
    pause: Duration,
}

impl OutboxReader {
    async fn next_delivery(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.read.pop_front() {
                return Ok(delivery);
            }
            let after: Vec<(u32, i64)> = self.cursors.iter().map(|(lane, after)| (*lane, *after)).collect();
            let rows = self.tables.remove_and_read(&[], &after, ROWS, ROWS).await?;
            if rows.is_empty() {
                let _ = tokio::time::timeout(self.pause, self.added.wait()).await;
                self.pause = (self.pause * 2).min(POLL_MAX);
                continue;
            }
            self.pause = POLL_MIN;
            for row in rows {
                self.cursors.insert(row.lane, row.position);
                self.read.push_back(Delivery::new(row.message, row.position).with_number(row.position));
            }
        }
    }
}

impl Reader for OutboxReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(self.next_delivery())
    }
}
