//! The store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, ErrorKind, Found, Hints, Id, Loaded, Page, Promises, Result,
    Scan, Seen, State, Store, StoreFuture, Swap, Swapped, Version, Watch,
};
use redis::{Cmd, Value, cmd};

use super::address::Address;
use super::errors::{CallEffect, failed_in_script};
use super::keys::{self, Keys};
use super::record;
use super::scan;
use super::scripts::Script;
use super::server_check::Durability;
use super::servers::Servers;
use super::watch::Watching;

/// What the key that marks a prefix says.
const FORMAT: &str = "onceward receipts 1";
/// The largest receipt. Redis takes eight times as much, and answers no other client while it copies it.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Swaps in one script call: Redis answers no other client while a script runs.
const CALL_SWAPS_MAX: usize = 128;
/// Bytes of receipts in one script call; a call always has at least one.
const CALL_BYTES_MAX: usize = 8 << 20;
/// Batches that are worth having in flight: one is written while the server works on the other.
const BATCHES_IN_FLIGHT: usize = 2;
/// A due time further away is treated as this one, over a century: scripts count in numbers with 53 bits.
const DUE_IN_US_MAX: u64 = 1 << 52;
/// How long Redis keeps a tombstone after it is due, so that a sweep removes it first.
const TOMBSTONE_KEPT_MS: &str = "3600000";

/// How to use Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long one call may take before it is an error.
    pub call_timeout: Duration,
    /// How all keys begin. Stores of different prefixes on one server know nothing of each other. A `prefix` in the
    /// address has precedence.
    pub prefix: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { call_timeout: Duration::from_secs(10), prefix: "onceward".to_owned() }
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

/// Stores receipts in Redis 6.2 or later, or Valkey: one server, a primary with sentinels, or a cluster.
///
/// It can lose receipts that it has acknowledged; [`losses`](Self::losses) says which. The engine therefore takes
/// it as its record of truth only with [`accept_volatile`](onceward::OncewardBuilder::accept_volatile).
pub struct RedisStore {
    pub(super) servers: Arc<Servers>,
    pub(super) keys: Keys,
    watching: Watching,
}

impl RedisStore {
    /// Connects to a server, such as `redis://user:password@host:6379/0`, and checks that it can keep receipts.
    ///
    /// Dropping the future leaves nothing behind but the key that marks the prefix as ours.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        let address = Address::parse(url)?;
        let keys = Keys::new(address.prefix.as_ref().unwrap_or(&options.prefix))?;
        let call_timeout = options.call_timeout.clamp(Duration::from_millis(10), Duration::from_mins(1));
        let servers = Arc::new(Servers::connect(&address, call_timeout).await?);
        let watching = Watching::new(keys.channel());
        let store = Self { servers, keys, watching };
        store.mark().await?;
        Ok(store)
    }

    /// Returns the possible losses of this store, in a sentence for operators.
    pub fn losses(&self) -> String {
        format!(
            "Redis can lose acknowledged receipts, and a retry of their intents then runs again: {}; a failover to a replica loses what the replica had not received",
            self.servers.durability()
        )
    }

    /// Marks the prefix as ours, or refuses it if it belongs to something else.
    async fn mark(&self) -> Result<()> {
        let key = self.keys.format();
        self.servers.ask(0, cmd("SET").arg(&key).arg(FORMAT).arg("NX")).await?;
        match self.servers.ask(0, cmd("GET").arg(&key)).await {
            Ok(Value::BulkString(format)) if format == FORMAT.as_bytes() => Ok(()),
            Ok(Value::BulkString(format)) if format.starts_with(b"onceward receipts ") => {
                let detail = format!(
                    "{}: a newer onceward keeps receipts under this prefix; use a newer one",
                    self.name(0)
                );
                Err(Error::new(ErrorKind::Foreign, detail))
            }
            Ok(_) => {
                let detail = format!(
                    "{}: the key `{key}` was not made by onceward; use another prefix (`?prefix=…`) or another database",
                    self.name(0)
                );
                Err(Error::new(ErrorKind::Foreign, detail))
            }
            Err(error) => Err(error),
        }
    }

    fn name(&self, bucket: usize) -> String {
        self.servers.name(bucket)
    }

    async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let mut answers: Vec<Option<Swapped>> = batch.iter().map(too_large).collect();
        let open: Vec<usize> = (0..batch.len()).filter(|&at| answers[at].is_none()).collect();
        let groups = self.groups(&open, |&at| {
            let bytes = batch[at].new.as_ref().map_or(0, |record| record.bytes.len());
            (keys::bucket(&batch[at].id), bytes)
        });
        let alone = groups.len() == 1 && open.len() == batch.len();
        let calls = groups.iter().map(|group| self.swap_group(batch, group));
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

    async fn swap_group(&self, batch: &[Swap], group: &[usize]) -> Result<Vec<Swapped>> {
        let bucket = keys::bucket(&batch[group[0]].id);
        let channel = self.keys.channel();
        let fill = |command: &mut Cmd| {
            command.arg(group.len());
            for &at in group {
                command.arg(self.keys.record(&batch[at].id));
            }
            command.arg(&channel);
            for &at in group {
                self.arguments(&batch[at], command);
            }
        };
        let answer = self.servers.call(bucket, Script::Swap, CallEffect::Writes, fill).await?;
        // Its writes may have happened: it is not one that the script makes.
        let (now_us, answers) = timed(answer, group.len()).map_err(Error::maybe_applied)?;
        let answers =
            group.iter().zip(answers).map(|(&at, answer)| self.swapped(&batch[at].id, answer, now_us));
        Ok(answers.collect())
    }

    /// What the script wants to know of a swap.
    fn arguments(&self, swap: &Swap, command: &mut Cmd) {
        let id = &swap.id;
        command.arg(self.keys.base(keys::bucket(id))).arg(id.as_bytes());
        match swap.seen {
            Seen::Absent => command.arg(""),
            Seen::Version(version) => command.arg(version.0),
        };
        let parent = id.parent();
        let parent = parent.as_ref().map_or(&[][..], Id::as_bytes);
        let Some(record) = &swap.new else {
            command.arg("").arg("").arg("").arg(parent).arg("");
            return;
        };
        command.arg(&[keys::letter(record.state)][..]);
        match record.due_in {
            None => command.arg(""),
            Some(due_in) => {
                command.arg(u64::try_from(due_in.as_micros()).unwrap_or(u64::MAX).min(DUE_IN_US_MAX))
            }
        };
        let expires = record.state == State::Gone && parent.is_empty();
        command.arg(if expires { TOMBSTONE_KEPT_MS } else { "" }).arg(parent).arg(&record.bytes[..]);
    }

    fn swapped(&self, id: &Id, answer: Value, now_us: u64) -> Swapped {
        match answer {
            Value::BulkString(version) => match number(&version) {
                Some(version) => Swapped::Won(Version(version)),
                None => Swapped::Failed(strange().maybe_applied()),
            },
            Value::Nil => Swapped::Lost(None),
            Value::Array(mut parts) if parts.len() == 1 => match self.found(id, parts.remove(0), now_us) {
                Ok(found) => Swapped::Lost(found),
                Err(error) => Swapped::Failed(error),
            },
            answer => Swapped::Failed(self.found(id, answer, now_us).err().unwrap_or_else(strange)),
        }
    }

    /// What a script says about a record.
    pub(super) fn found(&self, id: &Id, answer: Value, now_us: u64) -> Result<Option<Found>> {
        match answer {
            Value::Nil => Ok(None),
            Value::BulkString(value) => record::found(id, value, now_us).map(Some),
            Value::Array(parts) => match &parts[..] {
                [Value::BulkString(mark), Value::BulkString(message)] if mark == b"!" => {
                    Err(self.failed(id, &String::from_utf8_lossy(message)))
                }
                _ => Err(strange()),
            },
            _ => Err(strange()),
        }
    }

    fn failed(&self, id: &Id, message: &str) -> Error {
        if message.starts_with("WRONGTYPE") {
            return Error::new(ErrorKind::Foreign, record::foreign(id));
        }
        failed_in_script(&self.name(keys::bucket(id)), message).unwrap_or_else(strange)
    }

    async fn load_all(&self, ids: &[Id]) -> Result<Vec<Loaded>> {
        let all: Vec<usize> = (0..ids.len()).collect();
        let groups = self.groups(&all, |&at| (keys::bucket(&ids[at]), 0));
        let calls = groups.iter().map(|group| async move {
            let fill = |command: &mut Cmd| {
                command.arg(group.len());
                for &at in group {
                    command.arg(self.keys.record(&ids[at]));
                }
            };
            let bucket = keys::bucket(&ids[group[0]]);
            let answer = self.servers.call(bucket, Script::Read, CallEffect::Reads, fill).await?;
            timed(answer, group.len())
        });
        let mut loaded: Vec<Option<Loaded>> = ids.iter().map(|_| None).collect();
        for (group, called) in groups.iter().zip(join_all(calls).await) {
            match called {
                Ok((now_us, answers)) => {
                    for (&at, answer) in group.iter().zip(answers) {
                        loaded[at] = Some(self.found(&ids[at], answer, now_us));
                    }
                }
                Err(error) if groups.len() == 1 => return Err(error),
                Err(error) => group.iter().for_each(|&at| loaded[at] = Some(Err(error.clone()))),
            }
        }
        Ok(loaded.into_iter().map(|loaded| loaded.expect("every id is in a group")).collect())
    }

    /// Divides what has a bucket and a size into script calls.
    pub(super) fn groups<T: Clone>(&self, all: &[T], place: impl Fn(&T) -> (usize, usize)) -> Vec<Vec<T>> {
        let together = self.servers.buckets_are_together();
        let mut placed: Vec<(usize, usize, &T)> = all
            .iter()
            .map(|item| {
                let (bucket, bytes) = place(item);
                (if together { 0 } else { bucket }, bytes, item)
            })
            .collect();
        placed.sort_by_key(|(bucket, ..)| *bucket);
        let mut groups: Vec<Vec<T>> = Vec::new();
        let (mut last_bucket, mut group_bytes) = (usize::MAX, 0);
        for (bucket, bytes, item) in placed {
            group_bytes += bytes;
            let fits = |group: &Vec<T>| group.len() < CALL_SWAPS_MAX && group_bytes <= CALL_BYTES_MAX;
            match groups.last_mut().filter(|group| bucket == last_bucket && fits(group)) {
                Some(group) => group.push(item.clone()),
                None => {
                    groups.push(vec![item.clone()]);
                    (last_bucket, group_bytes) = (bucket, bytes);
                }
            }
        }
        groups
    }
}

/// The answer to a swap of a receipt that Redis does not take.
fn too_large(swap: &Swap) -> Option<Swapped> {
    let bytes = swap.new.as_ref()?.bytes.len();
    (bytes > RECORD_BYTES_MAX).then(|| {
        let detail =
            format!("a receipt of {bytes} bytes is too large for Redis; at most {RECORD_BYTES_MAX} fit");
        Swapped::Failed(Error::new(ErrorKind::Invalid, detail))
    })
}

/// Splits the answer of a script into the time and the rest, which must have this length.
pub(super) fn timed(answer: Value, length: usize) -> Result<(u64, Vec<Value>)> {
    let Value::Array(mut parts) = answer else { return Err(strange()) };
    if parts.len() != length + 1 {
        return Err(strange());
    }
    let rest = parts.split_off(1);
    match &parts[0] {
        Value::BulkString(now_us) => Ok((number(now_us).ok_or_else(strange)?, rest)),
        _ => Err(strange()),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// An answer that our scripts never give.
pub(super) fn strange() -> Error {
    Error::new(ErrorKind::Unavailable, "what answers at the address of Redis does not answer as Redis does")
}

impl Store for RedisStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(self.swap_all(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(self.load_all(ids))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(scan::scan(self, query))
    }

    /// The choice is made in this process, and a script cannot wait for it.
    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        self.watching.watch(&self.servers)
    }

    fn caps(&self) -> Caps {
        let promises = Promises::default()
            .with_durable(self.servers.durability() == Durability::Always)
            .with_atomic(true)
            // A replica that becomes the primary may lack what was acknowledged before.
            .with_failover_loss(true)
            .with_shared(true)
            .with_transactions(false)
            .with_clock(ClockSource::Store)
            .with_record_bytes_max(RECORD_BYTES_MAX);
        Caps::new("redis", promises).with_hints(
            Hints::default()
                .with_batches_in_flight(BATCHES_IN_FLIGHT)
                .with_batches_internally(false)
                .with_due(DueLookup::Index),
        )
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("server", &self.name(0)).finish_non_exhaustive()
    }
}
