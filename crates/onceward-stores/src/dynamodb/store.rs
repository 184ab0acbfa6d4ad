//! The store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, ErrorKind, Hints, Id, Loaded, Page, Promises, Record,
    Result, Scan, Seen, State, Store, StoreFuture, Swap, Swapped, Version, Watch,
};

use super::address::{self, Address};
use super::errors::{CallEffect, failed};
use super::item::{self, Item, There};
use super::{scan, table, write};
use crate::kit::dated_clock::{self, Checked, DatedClock, Stamp};
use crate::kit::migrated::Migrated;

/// The difference between the clocks of two processes that is allowed for: the grain of the `Date` field, and the round
/// trip in which it was made. A write whose answer shows a greater one is repeated with the right time.
pub const CLOCK_MARGIN: Duration = dated_clock::CLOCK_MARGIN;
/// The largest receipt: an item has 400 KiB, with its names, its id and its places in indexes.
pub(super) const RECORD_BYTES_MAX: usize = 392 << 10;
/// Writes of one batch that are in flight at once.
const WRITES_IN_FLIGHT: usize = 64;
/// Records that one call reads.
const CALL_READS_MAX: usize = 100;
/// Calls for records that the service left out of its answer.
const READS_AGAIN_MAX: u32 = 6;
const READ_AGAIN: Duration = Duration::from_millis(25);
/// Tries to get above the version of a removed record. Each one that fails means that another caller has made the record
/// and removed it in between: with a hundred callers that race for one id this happens often.
const ABOVE_REMOVED_MAX: usize = 64;
const BATCHES_IN_FLIGHT: usize = 8;

/// How to use DynamoDB.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long one call may take before it is an error.
    pub call_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { call_timeout: Duration::from_secs(10) }
    }
}

impl Options {
    /// Sets how long one call may take, from 10 ms to a minute.
    pub fn with_call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = call_timeout;
        self
    }

    fn bounded_timeout(&self) -> Duration {
        self.call_timeout.clamp(Duration::from_millis(10), Duration::from_mins(1))
    }
}

/// Stores receipts in a table of DynamoDB, in one region.
///
/// It has no clock of its own: see [`CLOCK_MARGIN`].
pub struct DynamoDbStore {
    pub(super) client: Client,
    pub(super) table: Arc<str>,
    pub(super) clock: Arc<DatedClock>,
}

impl DynamoDbStore {
    /// Opens a table, such as `dynamodb://receipts?region=eu-central-1`, and checks that it can keep receipts. The
    /// credentials are those that AWS's own tools would find.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let address = Address::parse(url)?;
        let clock = Arc::new(DatedClock::default());
        let client = address.client(&clock, options.bounded_timeout()).await;
        table::check(&client, &address.table).await?;
        clock.require("DynamoDB")?;
        Ok(Self { client, table: address.table.into(), clock })
    }

    /// A table that is asked through a client of the caller's: with its credentials, region and endpoint. The store's
    /// own calls are never retried by it.
    pub async fn from_client(client: &Client, table: &str) -> Result<Self> {
        let clock = Arc::new(DatedClock::default());
        let client = address::with_clock(client.config().to_builder(), &clock);
        table::check(&client, table).await?;
        clock.require("DynamoDB")?;
        Ok(Self { client, table: table.into(), clock })
    }

    /// Creates the table of an address if it does not exist.
    pub async fn migrate(url: &str) -> Result<Migrated> {
        let address = Address::parse(url)?;
        let options = Options::default();
        let client = address.client(&Arc::default(), options.bounded_timeout()).await;
        let is_new = table::create(&client, &address.table).await?;
        Ok(Migrated { from: u32::from(!is_new), to: 1 })
    }

    /// Swaps, and again if it turns out to be stamped with a time long past: the process was paused, and would otherwise
    /// leave a lease or a retention that is over already.
    pub(super) async fn swap_one(&self, swap: &Swap) -> Swapped {
        if let Some(record) = &swap.new
            && record.bytes.len() > RECORD_BYTES_MAX
        {
            return Swapped::Failed(too_large(record.bytes.len()));
        }
        let (swapped, stamp) = self.swap_stamped(swap).await;
        let (Swapped::Won(version), Some(record)) = (&swapped, &swap.new) else { return swapped };
        self.settle(&swap.id, *version, record, stamp).await
    }

    /// Checks the stamp of a record that was just written as this version, and writes it again if it is wrong.
    pub(super) async fn settle(&self, id: &Id, version: Version, record: &Record, stamp: Stamp) -> Swapped {
        let unproven = || Swapped::Failed(Checked::error(&format!("DynamoDB table `{}`", self.table)));
        let checked = self.clock.check(stamp);
        if !checked.must_be_repeated(record) {
            return if checked.is_enough(record) { Swapped::Won(version) } else { unproven() };
        }
        let again = Swap { id: id.clone(), seen: Seen::Version(version), new: Some(record.clone()) };
        let (swapped, stamp) = self.swap_stamped(&again).await;
        match swapped {
            Swapped::Won(version) if self.clock.check(stamp).is_enough(record) => Swapped::Won(version),
            // The first write was there, and somebody may have seen it.
            Swapped::Won(_) | Swapped::Lost(_) => unproven(),
            Swapped::Failed(error) => Swapped::Failed(error.maybe_applied()),
        }
    }

    async fn swap_stamped(&self, swap: &Swap) -> (Swapped, Stamp) {
        let mut above = match swap.seen {
            Seen::Absent => 0,
            Seen::Version(version) => version.0,
        };
        let mut stamp = self.clock.stamp();
        for _ in 0..ABOVE_REMOVED_MAX {
            stamp = self.clock.stamp();
            // A caller may name a version that was never given; it loses.
            let version = stamp.now_us.max(above.saturating_add(1));
            let there = if swap.seen == Seen::Absent && swap.new.is_none() {
                self.read_current(&swap.id).await
            } else {
                match self.write(swap, version, stamp.now_us).await {
                    Ok(None) => return (Swapped::Won(Version(version)), stamp),
                    Ok(Some(there)) => item::there(&swap.id, Some(&there), self.clock.now_us()),
                    Err(error) => Err(error),
                }
            };
            let swapped = match (there, swap.seen) {
                (Err(error), _) => Swapped::Failed(error),
                (Ok(There::Record(found)), _) => Swapped::Lost(Some(*found)),
                (Ok(There::Nothing | There::Removed(_)), Seen::Version(_)) => Swapped::Lost(None),
                (Ok(_), Seen::Absent) if swap.new.is_none() => Swapped::Won(Version(version)),
                // Another process's clock is ahead, or what was removed is gone in between.
                (Ok(There::Removed(version)), Seen::Absent) => {
                    above = version;
                    continue;
                }
                (Ok(There::Nothing), Seen::Absent) => continue,
            };
            return (swapped, stamp);
        }
        let detail = format!("DynamoDB table `{}`: {:?} is removed again and again", self.table, swap.id);
        (Swapped::Failed(Error::new(ErrorKind::Unavailable, detail)), stamp)
    }

    async fn read_current(&self, id: &Id) -> Result<There> {
        let read = self.read(std::slice::from_ref(id)).await.remove(0)?;
        item::there(id, read.as_ref(), self.clock.now_us())
    }

    /// Writes if everything is as seen; otherwise returns what is there.
    async fn write(&self, swap: &Swap, version: u64, now_us: u64) -> Result<Option<Item>> {
        let update = write::update(&self.table, swap, version, now_us);
        let sent = self
            .client
            .update_item()
            .table_name(update.table_name)
            .set_key(Some(update.key))
            .update_expression(update.update_expression)
            .set_condition_expression(update.condition_expression)
            .set_expression_attribute_names(update.expression_attribute_names)
            .set_expression_attribute_values(update.expression_attribute_values)
            .set_return_values_on_condition_check_failure(update.return_values_on_condition_check_failure)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(None),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Some(item_or_absent(refused.item.clone())))
                }
                _ => Err(failed(&self.table, CallEffect::Writes, &error)),
            },
        }
    }

    /// Reads items as they are now, in this order. Each has its own result: what could not be read in one call harms no
    /// other.
    pub(super) async fn read(&self, ids: &[Id]) -> Vec<Result<Option<Item>>> {
        // A call names no id twice.
        let unique: Vec<Id> = ids.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let calls = unique.chunks(CALL_READS_MAX).map(|ids| self.read_some(ids));
        let mut read = HashMap::new();
        for (ids, called) in unique.chunks(CALL_READS_MAX).zip(join_all(calls).await) {
            let (items, error) = called;
            read.extend(items.into_iter().filter_map(|item| Some((item::id(&item)?, Ok(item)))));
            if let Some((error, unread)) = error {
                let unread = unread.unwrap_or_else(|| ids.iter().cloned().collect());
                read.extend(unread.into_iter().map(|id| (id, Err(error.clone()))));
            }
        }
        ids.iter().map(|id| read.get(id).cloned().transpose()).collect()
    }

    /// Reads the items of one call. Then the error for those that were not read; all, if it names none.
    async fn read_some(&self, ids: &[Id]) -> (Vec<Item>, Option<(Error, Option<BTreeSet<Id>>)>) {
        let keys = ids.iter().map(item::key).collect();
        let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        let mut wanted = keys.expect("keys are given");
        let mut items = Vec::with_capacity(ids.len());
        let unread = |wanted: &KeysAndAttributes| Some(wanted.keys().iter().filter_map(item::id).collect());
        for again in 0..READS_AGAIN_MAX {
            if again > 0 {
                tokio::time::sleep(READ_AGAIN * 2u32.pow(again)).await;
            }
            let called =
                self.client.batch_get_item().request_items(&*self.table, wanted.clone()).send().await;
            let mut answer = match called {
                Ok(answer) => answer,
                Err(error) => {
                    let error = failed(&self.table, CallEffect::Reads, &error);
                    return (items, Some((error, unread(&wanted))));
                }
            };
            items.extend(
                answer.responses.take().and_then(|mut found| found.remove(&*self.table)).unwrap_or_default(),
            );
            let left = answer.unprocessed_keys.and_then(|mut left| left.remove(&*self.table));
            match left.filter(|left| !left.keys().is_empty()) {
                Some(left) => wanted = left,
                None => return (items, None),
            }
            wanted.consistent_read = Some(true);
        }
        let detail = format!(
            "DynamoDB table `{}`: it is asked more often than its capacity allows; raise that, or try again",
            self.table
        );
        (items, Some((Error::new(ErrorKind::Unavailable, detail), unread(&wanted))))
    }

    async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let swaps: Vec<_> = batch.iter().map(|swap| self.swap_one(swap)).collect();
        Ok(stream::iter(swaps).buffered(WRITES_IN_FLIGHT).collect().await)
    }

    async fn load_all(&self, ids: &[Id]) -> Vec<Loaded> {
        let read = self.read(ids).await;
        let now_us = self.clock.now_us();
        let loaded = ids.iter().zip(read).map(|(id, item)| match item::there(id, item?.as_ref(), now_us)? {
            There::Record(found) => Ok(Some(*found)),
            There::Nothing | There::Removed(_) => Ok(None),
        });
        loaded.collect()
    }
}

/// What is there, as the condition of a write found it. Nothing at all looks like what was removed before everything else.
pub(super) fn item_or_absent(found: Option<Item>) -> Item {
    found.filter(|found| !found.is_empty()).unwrap_or_else(absent_item)
}

/// The error for a receipt that DynamoDB does not take.
pub(super) fn too_large(bytes: usize) -> Error {
    let detail =
        format!("a receipt of {bytes} bytes is too large for DynamoDB; at most {RECORD_BYTES_MAX} fit");
    Error::new(ErrorKind::Invalid, detail)
}

/// What a swap finds where nothing is.
fn absent_item() -> Item {
    Item::from([("version".to_owned(), item::number(0)), ("removed".to_owned(), AttributeValue::Bool(true))])
}

impl Store for DynamoDbStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(self.swap_all(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move { Ok(self.load_all(ids).await) })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(scan::scan(self, query))
    }

    /// There is no step that reads and writes what was read.
    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    /// Streams of a table are another service's, and slower than looking.
    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        let promises = Promises::default()
            .with_durable(true)
            .with_atomic(true)
            .with_shared(true)
            .with_transactions(false)
            .with_clock(ClockSource::Process { margin: CLOCK_MARGIN })
            .with_record_bytes_max(RECORD_BYTES_MAX);
        Caps::new("dynamodb", promises).with_hints(
            Hints::default()
                .with_batches_in_flight(BATCHES_IN_FLIGHT)
                .with_batches_internally(false)
                .with_due(DueLookup::Index),
        )
    }
}

impl std::fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamoDbStore").field("table", &self.table).finish_non_exhaustive()
    }
}
