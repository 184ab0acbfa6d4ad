//! A volatile front in Redis: entries that expire, and a signal for those that wait for one.
//!
//! ```text
//! PREFIX:KEY     an entry; KEY is 16 bytes in hexadecimal
//! PREFIX:KEY     also the channel on which is published that an entry was replaced by another one
//! ```
//!
//! Nothing here has to be durable, and any eviction policy will do. Reads have a connection of their own; writes are
//! queued, sent together, and dropped if the queue is full. No caller waits for a connection to be opened.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use onceward::{Error, ErrorKind, FrontCache, FrontKey, FrontPut, Result, StoreFuture};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult, cmd};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::address::{Address, describe};
use super::errors::{CallEffect, failed, unconnected};
use crate::tls::{is_local, warn_unencrypted};

/// How long opening a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long opening a front waits for its first connection. Without one it is opened all the same.
const OPEN_MAX: Duration = Duration::from_secs(1);
/// How long an answer may take before the connection is given up.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Writes that may be queued. More are dropped: what is not in the front is read from the store.
const QUEUED_MAX: usize = 4_096;
/// Writes that are sent together.
const SENT_TOGETHER: usize = 256;
/// Pause before the connection for signals is opened again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(1);
/// How often channels without waiters are left.
const LEAVE_EVERY: Duration = Duration::from_secs(1);

/// A volatile front in Redis, for [`onceward::Front`].
pub struct RedisFront {
    reads: Arc<Line>,
    prefix: String,
    writes: mpsc::Sender<Write>,
    waits: mpsc::UnboundedSender<Wait>,
}

enum Write {
    Put(FrontPut),
    Remove(FrontKey, oneshot::Sender<RedisResult<()>>),
}

/// Somebody waits for a signal about this key; the first sender is told when signals arrive, the second at the first.
struct Wait {
    key: FrontKey,
    subscribed: oneshot::Sender<()>,
    changed: oneshot::Sender<()>,
}

impl RedisFront {
    /// Opens the front at an address such as `redis://host:6379/0` or `rediss://…`. Waits for a connection only for a
    /// moment: a server that cannot be reached now is used when it can be.
    pub async fn open(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let [host] = &address.hosts[..] else { return Err(invalid("it has several hosts")) };
        if address.sentinel.is_some() {
            return Err(invalid("it names a sentinel"));
        }
        if let ConnectionAddr::Tcp(name, _) = host.addr()
            && !is_local(name)
        {
            warn_unencrypted(&describe(host.addr()));
        }
        let client =
            Client::open(host.clone()).map_err(|error| invalid("it cannot be used").caused_by(error))?;
        let server = describe(host.addr());
        let reads = Line::new(&client, &server);
        let prefix = address.prefix.unwrap_or_else(|| "onceward-front".to_owned());
        let tried = tokio::time::timeout(OPEN_MAX, reads.try_out(&prefix)).await;
        let why = match tried {
            Ok(Ok(())) => None,
            // It will not become right by itself.
            Ok(Err(error)) if error.kind() == ErrorKind::Invalid => {
                let detail = "the front of this store cannot be used; correct `front=` in the address";
                return Err(Error::new(ErrorKind::Invalid, detail).caused_by(error));
            }
            Ok(Err(error)) => Some(with_causes(&error)),
            Err(_) => Some(format!("{server} did not answer within {OPEN_MAX:?}")),
        };
        if let Some(why) = why {
            tracing::warn!(why, "the store is used without its front until that can be used");
        }
        let (writes, to_write) = mpsc::channel(QUEUED_MAX);
        let (waits, waiting) = mpsc::unbounded_channel();
        tokio::spawn(write(Line::new(&client, &server), prefix.clone(), to_write));
        tokio::spawn(signal(client, prefix.clone(), waiting));
        Ok(Self { reads, prefix, writes, waits })
    }
}

impl FrontCache for RedisFront {
    fn get<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let mut live = self.reads.live()?;
            let got = cmd("GET").arg(name(&self.prefix, key)).query_async(&mut live.connection).await;
            let got: Option<Vec<u8>> = got.map_err(|error| self.reads.failed(&live, &error))?;
            Ok(got.map(Bytes::from))
        })
    }

    fn put(&self, put: FrontPut) {
        drop(self.writes.try_send(Write::Put(put)));
    }

    /// Behind the writes that are queued, which may be of the same entry.
    fn remove<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let gone = || unavailable(&self.reads.server, "its writer has ended");
            self.writes.send(Write::Remove(*key, tell)).await.map_err(|_| gone())?;
            let removed = told.await.map_err(|_| gone())?;
            removed.map_err(|error| unavailable(&self.reads.server, &error.to_string()))
        })
    }

    fn changed<'a>(
        &'a self,
        key: &'a FrontKey,
        seen: Option<&'a Bytes>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let ((subscribed, listening), (changed, signal)) = (oneshot::channel(), oneshot::channel());
            if self.waits.send(Wait { key: *key, subscribed, changed }).is_err() || listening.await.is_err() {
                // Without signals there is nothing to wait for.
                return;
            }
            // It may have been replaced before the subscription.
            if self.get(key).await.is_ok_and(|now| now.as_ref() == seen) {
                drop(signal.await);
            }
        })
    }
}

/// A connection that all callers use at once, opened by a task of its own and replaced when it is lost.
struct Line {
    client: Client,
    server: String,
    live: Mutex<Option<Live>>,
    opening: AtomicBool,
}

#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    number: u64,
}

impl Line {
    fn new(client: &Client, server: &str) -> Arc<Self> {
        let (client, server) = (client.clone(), server.to_owned());
        Arc::new(Self { client, server, live: Mutex::default(), opening: AtomicBool::new(false) })
    }

    /// The connection. If there is none, it is being opened from now on.
    fn live(self: &Arc<Self>) -> Result<Live> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if let Ok(runtime) = Handle::try_current()
            && !self.opening.swap(true, Ordering::Relaxed)
        {
            let line = Arc::clone(self);
            runtime.spawn(async move {
                if let Err(error) = line.connect().await {
                    tracing::debug!(why = with_causes(&error), "the front cannot be used");
                }
                line.opening.store(false, Ordering::Relaxed);
            });
        }
        Err(unavailable(&self.server, "there is no connection yet"))
    }

    fn current(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    /// Opens a connection and sends what a front sends, so that a missing password or right is said at once.
    async fn try_out(&self, prefix: &str) -> Result<()> {
        self.connect().await?;
        let mut live = self.current().ok_or_else(|| unavailable(&self.server, "the connection was lost"))?;
        let nothing = format!("{prefix}:");
        for command in ["GET", "DEL"] {
            let said = cmd(command).arg(&nothing).query_async::<redis::Value>(&mut live.connection).await;
            said.map_err(|error| self.refused(error))?;
        }
        let said =
            cmd("PUBLISH").arg(&nothing).arg("").query_async::<redis::Value>(&mut live.connection).await;
        said.map(drop).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: redis::RedisError) -> Error {
        if error.code() == Some("NOPERM") {
            let detail = format!(
                "{}: this user lacks a right; a front needs GET, SET, DEL, PUBLISH and SUBSCRIBE, and all keys and channels under its prefix",
                self.server
            );
            return Error::new(ErrorKind::Invalid, detail).caused_by(error);
        }
        failed(&self.server, CallEffect::Reads, error)
    }

    /// Opens a connection.
    async fn connect(&self) -> Result<()> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        match self.client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => {
                *lock(&self.live) = Some(Live { connection, number: next_number() });
                Ok(())
            }
            Err(error) => Err(unconnected(&self.server, error)),
        }
    }

    /// Gives a connection up, unless the server answered with this error.
    fn failed(&self, live: &Live, error: &redis::RedisError) -> Error {
        let mut now = lock(&self.live);
        if error.code().is_none() && now.as_ref().is_some_and(|now| now.number == live.number) {
            *now = None;
        }
        unavailable(&self.server, &error.to_string())
    }
}

/// Sends what is queued, together, until the front is dropped.
async fn write(line: Arc<Line>, prefix: String, mut queue: mpsc::Receiver<Write>) {
    let mut batch = Vec::with_capacity(SENT_TOGETHER);
    while queue.recv_many(&mut batch, SENT_TOGETHER).await > 0 {
        let mut pipe = redis::pipe();
        let (mut removals, mut replaced) = (Vec::new(), Vec::new());
        for write in batch.drain(..) {
            match write {
                Write::Put(put) => add_put(&mut pipe, &prefix, &put, &mut replaced),
                Write::Remove(key, tell) => {
                    pipe.cmd("DEL").arg(name(&prefix, &key)).ignore();
                    removals.push(tell);
                }
            }
        }
        // Nobody waits for this task, so it may wait for a connection; what is queued meanwhile is bounded.
        let connected = if line.current().is_some() { Ok(()) } else { line.connect().await };
        let sent = match (line.current(), connected) {
            (Some(mut current), _) => {
                let sent = send(&mut current.connection, &pipe, &replaced).await;
                sent.map_err(|error| line.failed(&current, &error).to_string())
            }
            (None, Err(error)) => Err(with_causes(&error)),
            (None, Ok(())) => Err("there is no connection".to_owned()),
        };
        for tell in removals {
            let told = sent.clone().map_err(|error| std::io::Error::other(error).into());
            // Nobody may be left to hear of it.
            let _ = tell.send(told);
        }
    }
}

/// Adds a write. If it replaces what is there, its name is added to `replaced`, and the answer says what that was.
fn add_put(pipe: &mut redis::Pipeline, prefix: &str, put: &FrontPut, replaced: &mut Vec<Vec<u8>>) {
    let name = name(prefix, &put.key);
    let ttl_ms = u64::try_from(put.ttl.as_millis()).unwrap_or(u64::MAX).max(1);
    let set = pipe.cmd("SET").arg(&name).arg(&put.bytes[..]).arg("PX").arg(ttl_ms);
    if put.replace {
        set.arg("GET");
        replaced.push(name);
    } else {
        set.arg("NX").ignore();
    }
}

/// Sends writes, and then signals for those that have replaced an entry: who waits for a signal has a hint there.
async fn send(
    connection: &mut MultiplexedConnection,
    writes: &redis::Pipeline,
    replaced: &[Vec<u8>],
) -> RedisResult<()> {
    let there: Vec<Option<redis::Value>> = writes.query_async(connection).await?;
    let mut signals = redis::pipe();
    for (name, _) in replaced.iter().zip(there).filter(|(_, there)| there.is_some()) {
        signals.cmd("PUBLISH").arg(&name[..]).arg("").ignore();
    }
    if signals.is_empty() {
        return Ok(());
    }
    signals.query_async(connection).await
}

/// Passes signals on to those who wait, until the front is dropped. While its connection is lost, signals are too.
async fn signal(client: Client, prefix: String, mut waiting: mpsc::UnboundedReceiver<Wait>) {
    while let Some(first) = waiting.recv().await {
        let Ok(pubsub) = client.get_async_pubsub().await else {
            tokio::time::sleep(SUBSCRIBE_AGAIN).await;
            continue;
        };
        let (mut sink, mut messages) = pubsub.split();
        let mut waits: HashMap<Vec<u8>, Vec<oneshot::Sender<()>>> = HashMap::new();
        let mut leave = tokio::time::interval(LEAVE_EVERY);
        let mut next = Some(first);
        loop {
            if let Some(Wait { key, subscribed, changed }) = next.take() {
                let name = name(&prefix, &key);
                if !waits.contains_key(&name) && sink.subscribe(&name[..]).await.is_err() {
                    break;
                }
                let waits = waits.entry(name).or_default();
                waits.retain(|changed| !changed.is_closed());
                waits.push(changed);
                let _ = subscribed.send(());
            }
            tokio::select! {
                wait = waiting.recv() => match wait {
                    Some(wait) => next = Some(wait),
                    None => return,
                },
                message = messages.next() => {
                    let Some(message) = message else { break };
                    let name = message.get_channel_name().as_bytes();
                    for changed in waits.remove(name).into_iter().flatten() {
                        let _ = changed.send(());
                    }
                    if sink.unsubscribe(name).await.is_err() {
                        break;
                    }
                }
                _ = leave.tick() => {
                    let left: Vec<Vec<u8>> = waits
                        .extract_if(|_, waits| waits.iter().all(oneshot::Sender::is_closed))
                        .map(|(name, _)| name)
                        .collect();
                    if !left.is_empty() && sink.unsubscribe(&left).await.is_err() {
                        break;
                    }
                }
            }
        }
    }
}

fn name(prefix: &str, key: &FrontKey) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    let mut name = Vec::with_capacity(prefix.len() + 1 + 2 * FrontKey::BYTES);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b':');
    for byte in key.0 {
        name.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    }
    name
}

fn next_number() -> u64 {
    static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// Nothing that can panic happens under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unavailable(server: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the front, {server}, is not used: {why}"))
}

/// An error and what caused it, in a line.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(now) = cause {
        let said = now.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = now.source();
    }
    text
}

fn invalid(why: &str) -> Error {
    let detail = format!("a front is one server, as in front=redis://host:6379/0, and {why}");
    Error::new(ErrorKind::Invalid, detail)
}

impl std::fmt::Debug for RedisFront {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisFront").field("server", &self.reads.server).finish_non_exhaustive()
    }
}
