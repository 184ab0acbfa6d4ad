//! The store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onceward::{
    Caps, Choose, ClockSource, DueLookup, Error, ErrorKind, Found, Hints, Id, Loaded, Page, Promises, Result,
    Scan, State, Store, StoreFuture, Swap, Swapped, Watch,
};
use redis::{Cmd, Value};

use super::address::Address;
use super::errors::{CallEffect, failed_in_script};
use super::groups::groups;
use super::keys::Keys;
use super::mark;
use super::record;
use super::scan;
use super::scripts::Script;
use super::server_check::Durability;
use super::servers::Servers;
use super::swap;
use super::watch::Watching;

/// The largest receipt. Redis takes eight times as much, and answers no other client while it copies it.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Batches that are worth having in flight: one is written while the server works on the other.
const BATCHES_IN_FLIGHT: usize = 2;
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
        let keys = Keys::new(address.prefix.as_ref().unwrap_or(&options.prefix), 1)?;
        let call_timeout = options.call_timeout.clamp(Duration::from_millis(10), Duration::from_mins(1));
        let servers = Arc::new(Servers::connect(&address, call_timeout).await?);
        let keys = keys.divided(mark::mark(&servers, &keys.format()).await?)?;
        let watching = Watching::new(keys.channel());
        Ok(Self { servers, keys, watching })
    }

    /// Returns the possible losses of this store, in a sentence for operators.
    pub fn losses(&self) -> String {
        format!(
            "Redis can lose acknowledged receipts, and a retry of their intents then runs again: {}; a failover to a replica loses what the replica had not received",
            self.servers.durability()
        )
    }

    pub(super) fn name(&self, bucket: usize) -> String {
        self.servers.name(bucket)
    }

    async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let mut answers: Vec<Option<Swapped>> = batch.iter().map(too_large).collect();
        let open: Vec<usize> = (0..batch.len()).filter(|&at| answers[at].is_none()).collect();
        let groups = groups(&open, |&at| {
            let bytes = batch[at].new.as_ref().map_or(0, |record| record.bytes.len());
            (self.keys.bucket(&batch[at].id), bytes)
        });
        let alone = groups.len() == 1 && open.len() == batch.len();
        let calls = groups.iter().map(|group| swap::call(self, batch, group));
        for (group, called) in groups.iter().zip(join_all(calls).await) {
            match called {
                Ok(swapped) => swapped.into_iter().for_each(|(at, swapped)| answers[at] = Some(swapped)),
                Err(error) if alone => return Err(error),
                Err(error) => group.iter().for_each(|&at| {
                    answers[at] = Some(Swapped::Failed(error.clone()));
                }),
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("every swap is in a group")).collect())
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
        failed_in_script(&self.name(self.keys.bucket(id)), message).unwrap_or_else(strange)
    }

    async fn load_all(&self, ids: &[Id]) -> Result<Vec<Loaded>> {
        let all: Vec<usize> = (0..ids.len()).collect();
        let groups = groups(&all, |&at| (self.keys.bucket(&ids[at]), 0));
        let calls = groups.iter().map(|group| async move {
            let fill = |command: &mut Cmd| {
                command.arg(group.len());
                for &at in group {
                    command.arg(self.keys.record(&ids[at]));
                }
            };
            let bucket = self.keys.bucket(&ids[group[0]]);
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

pub(super) fn number(digits: &[u8]) -> Option<u64> {
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
