//! The store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, ErrorKind, Found, Hints, Id, Loaded, Page, Promises, Result,
    Scan, Seen, State, Store, StoreFuture, Swap, Swapped, Version, Watch,
};
use serde_json::Value;

use super::address::Address;
use super::api::{self, KeyValue, Range, Txn};
use super::client::Client;
use super::errors::{CallEffect, strange};
use super::heads::Heads;
use super::keys::{Keys, NEVER};
use super::record::{self, Head};
use super::watch::Watching;
use super::{scan, server_check};
use crate::kit;
use crate::kit::dated_clock;

/// The difference between the clocks of two processes that is allowed for: that of the servers they ask, and the grain of
/// the `Date` field. Servers whose clocks differ by more are refused when the store is opened, as far as an address
/// names them.
pub const CLOCK_MARGIN: Duration = dated_clock::CLOCK_MARGIN;
/// What the key that marks a prefix says.
const FORMAT: &[u8] = b"onceward receipts 1";
/// The largest receipt: a server takes requests of 1.5 MiB, unless it is told otherwise.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Swaps in one transaction: each has up to four operations, and a server takes 128 in all.
const CALL_SWAPS_MAX: usize = 100;
/// Bytes of receipts in one transaction; one always has at least one swap.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Records that one transaction reads.
pub(super) const CALL_READS_MAX: usize = 100;
/// Batches that are worth having in flight: etcd syncs those that arrive together at once.
const BATCHES_IN_FLIGHT: usize = 4;
const TXN: &str = "/v3/kv/txn";

/// How to use etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long one call may take before it is an error.
    pub call_timeout: Duration,
    /// How all keys begin. Stores of different prefixes in one cluster know nothing of each other. A `prefix` in the
    /// address has precedence.
    pub prefix: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { call_timeout: Duration::from_secs(10), prefix: "onceward/".to_owned() }
    }
}

impl Options {
    /// Sets how long one call may take, from 10 ms to a minute.
    pub fn with_call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = call_timeout;
        self
    }

    /// Sets how all keys begin.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
}

/// Stores receipts in etcd 3.4 or later.
///
/// It is durable, and keeps its promises across failovers. It has no clock of its own: see [`CLOCK_MARGIN`].
pub struct EtcdStore {
    pub(super) client: Arc<Client>,
    pub(super) keys: Keys,
    heads: Heads,
    watching: Watching,
}

impl EtcdStore {
    /// Connects to a cluster, such as `etcd://host:2379,host:2379`, and checks that it can keep receipts.
    ///
    /// Dropping the future leaves nothing behind but the key that marks the prefix as ours.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let address = Address::parse(url)?;
        let keys = Keys::new(address.prefix.as_ref().unwrap_or(&options.prefix))?;
        let call_timeout = options.call_timeout.clamp(Duration::from_millis(10), Duration::from_mins(1));
        let client = Arc::new(Client::new(&address, call_timeout)?);
        client.http.warn_unencrypted(&address);
        server_check::check(&client).await?;
        client.clock.require(&client.http.name())?;
        server_check::check_clocks(&address, call_timeout).await?;
        let store = Self { client, keys, heads: Heads::default(), watching: Watching::default() };
        store.mark().await?;
        Ok(store)
    }

    /// Marks the prefix as ours, or refuses it if it belongs to something else.
    async fn mark(&self) -> Result<()> {
        let key = self.keys.format();
        let body = api::if_revision(&key, 0, &[api::put(&key, FORMAT)], &[api::get(&key)]);
        let answer = self.txn(&body, CallEffect::Writes).await?;
        let there = answer.responses.into_iter().next().and_then(|response| response.response_range);
        let there = there.and_then(|range| range.kvs.into_iter().next()).map(|there| there.value);
        let foreign = |why: &str| {
            let detail = format!("{}: {why}", self.client.http.name());
            Err(Error::new(ErrorKind::Foreign, detail))
        };
        match there {
            _ if answer.succeeded => Ok(()),
            Some(format) if format == FORMAT => Ok(()),
            Some(format) if format.starts_with(b"onceward receipts ") => {
                foreign("a newer onceward keeps receipts under this prefix; use a newer one")
            }
            _ => foreign(&format!(
                "the key `{}` was not made by onceward; use another prefix (`?prefix=…`)",
                String::from_utf8_lossy(&key)
            )),
        }
    }

    pub(super) async fn txn(&self, body: &Value, effect: CallEffect) -> Result<Txn> {
        self.client.call(TXN, body, effect).await
    }

    /// Swaps with the due times that this moment gives.
    pub(super) async fn swap_stamped(&self, batch: &[Swap], now_us: u64) -> Result<Vec<Swapped>> {
        let mut answers: Vec<Option<Swapped>> = batch.iter().map(too_large).collect();
        let mut heads: Vec<Option<Head>> = batch.iter().map(|_| None).collect();
        self.know_heads(batch, &mut heads, &mut answers).await?;
        let open: Vec<usize> = (0..batch.len()).filter(|&at| answers[at].is_none()).collect();
        let groups = groups(&open, |&at| batch[at].new.as_ref().map_or(0, |record| record.bytes.len()));
        let alone = groups.len() == 1 && open.len() == batch.len();
        let calls = groups.iter().map(|group| self.swap_group(batch, &heads, group, now_us));
        for (group, called) in groups.iter().zip(join_all(calls).await) {
            match called {
                Ok(swapped) => group.iter().zip(swapped).for_each(|(&at, swapped)| {
                    answers[at] = Some(swapped);
                }),
                Err(error) if alone => return Err(error),
                Err(error) => group.iter().for_each(|&at| {
                    answers[at] = Some(Swapped::Failed(error.clone()));
                }),
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("every swap is in a group")).collect())
    }

    /// Finds the heads of the records that are replaced: remembered, or read now. What is not as seen has lost already.
    async fn know_heads(
        &self,
        batch: &[Swap],
        heads: &mut [Option<Head>],
        answers: &mut [Option<Swapped>],
    ) -> Result<()> {
        let mut unknown = Vec::new();
        for (at, swap) in batch.iter().enumerate() {
            if let Seen::Version(version) = swap.seen
                && answers[at].is_none()
            {
                heads[at] = self.heads.find(&swap.id, version);
                if heads[at].is_none() {
                    unknown.push(at);
                }
            }
        }
        let ids: Vec<&Id> = unknown.iter().map(|&at| &batch[at].id).collect();
        for (&at, there) in unknown.iter().zip(self.read(&ids).await?) {
            let (swap, there) = (&batch[at], there?);
            let head = there.as_ref().map(|there| record::head(&swap.id, &there.value)).transpose();
            match (head, there) {
                (Err(error), _) => answers[at] = Some(Swapped::Failed(error)),
                (Ok(Some(head)), Some(there)) if swap.seen == Seen::Version(Version(there.mod_revision)) => {
                    heads[at] = Some(head);
                }
                (Ok(_), there) => {
                    let found = there.map(|there| self.found(&swap.id, there));
                    answers[at] = Some(match found.transpose() {
                        Ok(found) => Swapped::Lost(found),
                        Err(error) => Swapped::Failed(error),
                    });
                }
            }
        }
        Ok(())
    }

    async fn swap_group(
        &self,
        batch: &[Swap],
        heads: &[Option<Head>],
        group: &[usize],
        now_us: u64,
    ) -> Result<Vec<Swapped>> {
        let mut operations: Vec<Value> =
            group.iter().map(|&at| self.operation(&batch[at], heads[at].as_ref(), now_us)).collect();
        // etcd does not count nested writes against its quota, and would grow past it. Removals go on.
        if group.iter().any(|&at| batch[at].new.is_some()) {
            operations.push(api::put(&self.keys.counted(), b""));
        }
        let answer = self.txn(&api::all(&operations), CallEffect::Writes).await?;
        if answer.responses.len() != operations.len() {
            return Err(strange(&self.client.http.name(), CallEffect::Writes));
        }
        let version = Version(answer.header.revision);
        let answers = group.iter().zip(answer.responses).map(|(&at, response)| {
            let swap = &batch[at];
            match response.response_txn {
                Some(Txn { succeeded: true, .. }) => {
                    match new_head(swap, heads[at].as_ref(), now_us) {
                        Some(head) => self.heads.note(&swap.id, version, head),
                        None => self.heads.forget(&swap.id),
                    }
                    Swapped::Won(version)
                }
                Some(Txn { responses, .. }) => {
                    let range = responses.into_iter().next().and_then(|response| response.response_range);
                    match range.and_then(first).map(|there| self.found(&swap.id, there)).transpose() {
                        Ok(found) => Swapped::Lost(found),
                        Err(error) => Swapped::Failed(error),
                    }
                }
                None => Swapped::Failed(strange(&self.client.http.name(), CallEffect::Writes)),
            }
        });
        Ok(answers.collect())
    }

    /// A swap as an operation of a transaction. `head` is that of the record that it replaces.
    fn operation(&self, swap: &Swap, head: Option<&Head>, now_us: u64) -> Value {
        let id = &swap.id;
        let key = self.keys.record(id);
        let old_entry = head.map(|head| self.keys.entry(head.state, head.due_us, id));
        let mut writes = Vec::with_capacity(4);
        match (&swap.new, new_head(swap, head, now_us)) {
            (Some(record), Some(new)) => {
                let entry = self.keys.entry(new.state, new.due_us, id);
                writes.push(api::put(&key, &record::encoded(&new, record)));
                // Also where it is the same as before: it is what is watched.
                writes.push(api::put(&entry, b""));
                writes.extend(old_entry.filter(|old| *old != entry).map(|old| api::delete(&old)));
                if head.is_none() {
                    writes.extend(self.keys.step(id).map(|step| api::put(&step, b"")));
                }
            }
            _ => {
                if let Some(old_entry) = old_entry {
                    writes.push(api::delete(&key));
                    writes.push(api::delete(&old_entry));
                    writes.extend(self.keys.step(id).map(|step| api::delete(&step)));
                }
            }
        }
        let revision = match swap.seen {
            Seen::Absent => 0,
            Seen::Version(version) => version.0,
        };
        api::nested(&api::if_revision(&key, revision, &writes, &[api::get(&key)]))
    }

    /// What is there, as a caller sees it. It is remembered.
    pub(super) fn found(&self, id: &Id, there: KeyValue) -> Result<Found> {
        let head = record::head(id, &there.value)?;
        self.heads.note(id, Version(there.mod_revision), head);
        Ok(record::found(&head, there.mod_revision, there.value, self.client.clock.now_us()))
    }

    /// Reads what is there now, in this order.
    pub(super) async fn read(&self, ids: &[&Id]) -> Result<Vec<Result<Option<KeyValue>>>> {
        let calls = ids.chunks(CALL_READS_MAX).map(|ids| async move {
            let gets: Vec<Value> = ids.iter().map(|id| api::get(&self.keys.record(id))).collect();
            let answer = self.txn(&api::all(&gets), CallEffect::Reads).await?;
            if answer.responses.len() != ids.len() {
                return Err(strange(&self.client.http.name(), CallEffect::Reads));
            }
            Ok(answer.responses)
        });
        let called = join_all(calls).await;
        let alone = called.len() == 1;
        let mut read = Vec::with_capacity(ids.len());
        for (ids, called) in ids.chunks(CALL_READS_MAX).zip(called) {
            match called {
                Ok(responses) => {
                    read.extend(
                        responses.into_iter().map(|response| Ok(response.response_range.and_then(first))),
                    );
                }
                Err(error) if alone => return Err(error),
                Err(error) => read.extend(ids.iter().map(|_| Err(error.clone()))),
            }
        }
        Ok(read)
    }

    async fn load_all(&self, ids: &[Id]) -> Result<Vec<Loaded>> {
        let read = self.read(&ids.iter().collect::<Vec<_>>()).await?;
        let loaded = ids.iter().zip(read).map(|(id, there)| match there? {
            Some(there) => self.found(id, there).map(Some),
            None => Ok(None),
        });
        Ok(loaded.collect())
    }
}

/// The head of the record that a swap writes; `None` for a removal.
fn new_head(swap: &Swap, replaced: Option<&Head>, now_us: u64) -> Option<Head> {
    let record = swap.new.as_ref()?;
    Some(Head {
        state: record.state,
        created_us: replaced.map_or(now_us, |head| head.created_us),
        updated_us: now_us,
        due_us: kit::due_us(now_us, record.due_in).unwrap_or(NEVER),
    })
}

fn first(range: Range) -> Option<KeyValue> {
    range.kvs.into_iter().next()
}

/// Divides swaps into transactions.
fn groups(all: &[usize], bytes: impl Fn(&usize) -> usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_bytes = 0;
    for at in all {
        let fits = group_bytes + bytes(at) <= CALL_BYTES_MAX;
        match groups.last_mut().filter(|group| fits && group.len() < CALL_SWAPS_MAX) {
            Some(group) => {
                group.push(*at);
                group_bytes += bytes(at);
            }
            None => {
                groups.push(vec![*at]);
                group_bytes = bytes(at);
            }
        }
    }
    groups
}

/// The answer to a swap of a receipt that etcd does not take.
fn too_large(swap: &Swap) -> Option<Swapped> {
    let bytes = swap.new.as_ref()?.bytes.len();
    (bytes > RECORD_BYTES_MAX).then(|| {
        let detail =
            format!("a receipt of {bytes} bytes is too large for etcd; at most {RECORD_BYTES_MAX} fit");
        Swapped::Failed(Error::new(ErrorKind::Invalid, detail))
    })
}

impl Store for EtcdStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(self.swap_all(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(self.load_all(ids))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(scan::scan(self, query))
    }

    /// The choice is made in this process, and a transaction cannot wait for it.
    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        self.watching.watch(&self.client, &self.keys)
    }

    fn caps(&self) -> Caps {
        let promises = Promises::default()
            .with_durable(true)
            .with_atomic(true)
            .with_shared(true)
            .with_transactions(false)
            .with_clock(ClockSource::Process { margin: CLOCK_MARGIN })
            .with_record_bytes_max(RECORD_BYTES_MAX);
        Caps::new("etcd", promises).with_hints(
            Hints::default()
                .with_batches_in_flight(BATCHES_IN_FLIGHT)
                .with_batches_internally(false)
                .with_due(DueLookup::Index),
        )
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("server", &self.client.http.name()).finish_non_exhaustive()
    }
}
