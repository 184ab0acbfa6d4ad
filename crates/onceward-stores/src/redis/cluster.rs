//! Which node of a cluster has a bucket.
//!
//! A bucket is in one slot, and a slot on one node. While a slot is being moved, a call for it is refused by the cluster
//! and tried again for a moment; it is never sent to both nodes, because an index must not exist on both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use redis::{Cmd, ConnectionInfo, ServerErrorKind, Value, cmd};

use super::address::describe;
use super::connection::{CallError, Endpoint, Node, SaidDurability};
use super::errors::CallEffect;
use super::keys::BUCKETS_MAX;
use super::scripts::Script;
use super::sentinel;

const SLOTS: u16 = 16_384;
/// Pauses before a call that the cluster refused is tried again. Slots are moved, and primaries replaced, in such times;
/// a caller that still fails then tries again later.
const PAUSES_MS: [u64; 7] = [0, 20, 50, 100, 200, 400, 800];

/// The nodes of a cluster.
pub(super) struct Cluster {
    hosts: Vec<ConnectionInfo>,
    call_timeout: Duration,
    nodes: Mutex<BTreeMap<(String, u16), Arc<Node>>>,
    /// The node of each bucket.
    owners: Mutex<Vec<Arc<Node>>>,
}

impl Cluster {
    pub(super) async fn connect(
        hosts: &[ConnectionInfo],
        call_timeout: Duration,
        said: &SaidDurability,
    ) -> Result<Self> {
        let (nodes, owners) = (Mutex::default(), Mutex::default());
        let cluster = Self { hosts: hosts.to_vec(), call_timeout, nodes, owners };
        cluster.refresh(said).await?;
        // Every node that has a bucket says what it promises before the store is used.
        let owners = lock(&cluster.owners).clone();
        for node in owners {
            node.ask(said, &cmd("PING")).await?;
        }
        Ok(cluster)
    }

    /// Runs a script on the node that has this bucket.
    pub(super) async fn call(
        &self,
        said: &SaidDurability,
        bucket: usize,
        script: Script,
        effect: CallEffect,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value> {
        let mut refused = None;
        for pause_ms in PAUSES_MS {
            if refused.is_some() {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                // If nobody says, the old owners may still be right.
                let _ = self.refresh(said).await;
            }
            let node = self.owner(bucket);
            match node.call(said, script, &fill).await {
                Ok(value) => return Ok(value),
                // Nothing was sent, or the cluster has refused it as a whole.
                Err(error) if is_unsent(&error) => refused = Some(error.into_error(&node.server, effect)),
                Err(error) => return Err(error.into_error(&node.server, effect)),
            }
        }
        Err(refused.expect("it was refused each time"))
    }

    /// Sends a command that may be sent twice to the node that has this bucket.
    pub(super) async fn ask(&self, said: &SaidDurability, bucket: usize, command: &Cmd) -> Result<Value> {
        let first = self.owner(bucket).ask(said, command).await;
        if first.is_ok() {
            return first;
        }
        self.refresh(said).await?;
        self.owner(bucket).ask(said, command).await
    }

    pub(super) fn owner(&self, bucket: usize) -> Arc<Node> {
        Arc::clone(&lock(&self.owners)[bucket])
    }

    /// Asks the nodes which of them has which slots, until one answers.
    async fn refresh(&self, said: &SaidDurability) -> Result<()> {
        let known: Vec<Arc<Node>> = lock(&self.nodes).values().cloned().collect();
        let given = self.hosts.iter().map(|host| match host.addr() {
            redis::ConnectionAddr::Tcp(name, port)
            | redis::ConnectionAddr::TcpTls { host: name, port, .. } => self.node(name, *port),
            redis::ConnectionAddr::Unix(_) => {
                Err(Error::new(ErrorKind::Invalid, "a cluster has no socket file"))
            }
            _ => Err(Error::new(ErrorKind::Invalid, "a cluster needs hosts with ports")),
        });
        let mut last = None;
        for node in known.into_iter().map(Ok).chain(given) {
            let asked = async {
                let node = node?;
                let slots = node.ask(said, cmd("CLUSTER").arg("SLOTS")).await?;
                self.owners_of(&slots, &node)
            };
            match asked.await {
                Ok(owners) => {
                    *lock(&self.owners) = owners;
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("an address has a host"))
    }

    /// The node of each bucket, by the answer to `CLUSTER SLOTS` of this node.
    fn owners_of(&self, slots: &Value, asked: &Node) -> Result<Vec<Arc<Node>>> {
        let ranges = ranges(slots);
        let owner = |bucket: usize| {
            let slot = slot(bucket);
            let range =
                ranges.iter().find(|range| (range.first..=range.last).contains(&slot)).ok_or_else(|| {
                    let detail =
                        format!("{}: no node of the cluster has slot {slot}; see CLUSTER INFO", asked.server);
                    Error::new(ErrorKind::Unavailable, detail)
                })?;
            self.node(&range.host, range.port)
        };
        (0..BUCKETS_MAX).map(owner).collect()
    }

    fn node(&self, host: &str, port: u16) -> Result<Arc<Node>> {
        let mut nodes = lock(&self.nodes);
        if let Some(node) = nodes.get(&(host.to_owned(), port)) {
            return Ok(Arc::clone(node));
        }
        let client = sentinel::client(&self.hosts[0], host.to_owned(), port)?;
        let server = describe(client.get_connection_info().addr());
        let node = Arc::new(Node::new(server, Endpoint::Fixed(client), self.call_timeout));
        nodes.insert((host.to_owned(), port), Arc::clone(&node));
        Ok(node)
    }
}

/// Whether a call was certainly not begun, and may be tried again, perhaps elsewhere.
fn is_unsent(error: &CallError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain};
    match error {
        CallError::Unconnected(error) => error.kind() == ErrorKind::Unavailable,
        CallError::Failed(_) => {
            matches!(error.answer(), Some(Ask | ClusterDown | MasterDown | Moved | ReadOnly | TryAgain))
        }
    }
}

/// The slots of one node.
#[derive(Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    host: String,
    port: u16,
}

/// Reads the answer to `CLUSTER SLOTS`. Of each range, the first node is the primary.
fn ranges(slots: &Value) -> Vec<SlotRange> {
    let Value::Array(slots) = slots else { return Vec::new() };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [first, last, Value::Array(primary), ..] = &parts[..] else { return None };
        let [Value::BulkString(host), port, ..] = &primary[..] else { return None };
        let host = String::from_utf8(host.clone()).ok()?;
        Some(SlotRange { first: number(first)?, last: number(last)?, host, port: number(port)? })
    };
    slots.iter().filter_map(range).collect()
}

/// The slot of a bucket: of its hash tag, which is its number.
fn slot(bucket: usize) -> u16 {
    crc16(bucket.to_string().as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, as the cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// Nothing that can panic happens under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "cluster_test.rs"]
mod tests;
