//! Redis Streams. A message is an entry of the stream `PREFIX.PARTITION`.
//!
//! Redis before 8.6 recognises no copies, and no version can fence off a relay that was paused: copies are dropped by the
//! consumer. A Redis that keeps nothing on disk, or that removes keys when its memory is full, loses what it has confirmed:
//! it is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, cmd};

use super::{Outgoing, PublishFuture, Publisher};
use crate::layout::Layout;
use crate::redis::{HEADER, ID, KEY, PAYLOAD, POSITION, TOPIC, client, connect, failed};

/// How long the server may take for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Publishes to streams of Redis (5 or later), one for each partition.
#[derive(Clone)]
pub struct RedisPublisher {
    client: Client,
    layout: Layout,
    accepts_unsaved: bool,
    live: Arc<Mutex<Option<MultiplexedConnection>>>,
    /// Held while a connection is being opened.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl RedisPublisher {
    /// Publishes to the streams `PREFIX.PARTITION`, which need not exist. The number of partitions (1 to 1,024) bounds how
    /// many processes a consumer can have; it cannot be changed while messages are unread.
    ///
    /// Fails if the server cannot be reached, has no append-only file, or removes keys when its memory is full.
    pub async fn open(url: &str, prefix: &str, partitions: u32) -> Result<Self> {
        Self::open_with(url, prefix, partitions, false).await
    }

    /// The same, and takes a server without an append-only file: for one whose replicas are enough. What it has confirmed
    /// is lost if it dies.
    pub async fn open_unsaved(url: &str, prefix: &str, partitions: u32) -> Result<Self> {
        Self::open_with(url, prefix, partitions, true).await
    }

    async fn open_with(url: &str, prefix: &str, partitions: u32, accepts_unsaved: bool) -> Result<Self> {
        let publisher = Self {
            client: client(url)?,
            layout: Layout::new(prefix, partitions)?,
            accepts_unsaved,
            live: Arc::default(),
            opening: Arc::default(),
        };
        publisher.connection().await?;
        Ok(publisher)
    }

    /// The connection that all share. A new one is checked: the server may have been replaced.
    async fn connection(&self) -> Result<MultiplexedConnection> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let _opening = self.opening.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut connection = connect(&self.client, ANSWER_MAX).await?;
        let info: String = cmd("INFO")
            .query_async(&mut connection)
            .await
            .map_err(|error| failed("Redis does not say how it keeps its data", error))?;
        check(&info, self.accepts_unsaved)?;
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
        Ok(connection)
    }

    fn live(&self) -> Option<MultiplexedConnection> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn add(&self, mut connection: MultiplexedConnection, outgoing: &Outgoing) -> Result<()> {
        let message = outgoing.message();
        let mut add = cmd("XADD");
        add.arg(self.layout.place(outgoing.partition(self.layout.partitions()))).arg("*");
        add.arg(ID).arg(message.id()).arg(TOPIC).arg(message.topic()).arg(POSITION).arg(outgoing.position());
        if let Some(key) = message.ordering_key() {
            add.arg(KEY).arg(key);
        }
        for (name, value) in message.headers() {
            add.arg(format!("{HEADER}{name}")).arg(value);
        }
        add.arg(PAYLOAD).arg(&message.payload()[..]);
        add.query_async::<String>(&mut connection).await.map(drop).map_err(|error: RedisError| {
            // An answer leaves the connection usable, unless the server is a replica by now.
            if error.code().is_none_or(|code| code == "READONLY") {
                *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            failed("Redis did not take a message", error).maybe_applied()
        })
    }
}

impl Publisher for RedisPublisher {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            match self.connection().await {
                Ok(connection) => {
                    join_all(batch.iter().map(|outgoing| self.add(connection.clone(), outgoing))).await
                }
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }

    fn target(&self) -> String {
        format!("Redis, {} partitions of `{}`", self.layout.partitions(), self.layout.prefix())
    }
}

impl std::fmt::Debug for RedisPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisPublisher").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Whether a server that says this of itself keeps what it confirms.
fn check(info: &str, accepts_unsaved: bool) -> Result<()> {
    let said: HashMap<&str, &str> = info.lines().filter_map(|line| line.trim().split_once(':')).collect();
    let unfit = |detail: &'static str| Err(Error::new(ErrorKind::Unfit, detail));
    if said.get("role").is_some_and(|role| *role != "master") {
        let detail = "this Redis is a replica, which takes no messages; give the address of its primary";
        return Err(Error::new(ErrorKind::Unavailable, detail));
    }
    if said.get("cluster_enabled") == Some(&"1") {
        return unfit("this Redis is a node of a cluster; messages need one server, with replicas");
    }
    let removes = said.get("maxmemory_policy").is_some_and(|policy| policy.starts_with("allkeys-"));
    if removes {
        return unfit(
            "this Redis removes keys when its memory is full, also streams with unread messages; set maxmemory-policy to \
             noeviction",
        );
    }
    if !accepts_unsaved && said.get("aof_enabled") == Some(&"0") {
        return unfit(
            "this Redis has no append-only file and loses confirmed messages when it stops; set appendonly to yes",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself_decides() {
        let good = "role:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";
        check(good, false).unwrap();
        check(&good.replace("noeviction", "volatile-lru"), false).unwrap();
        let refused = |info: &str, text: &str| {
            let error = check(info, false).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        refused(&good.replace("aof_enabled:1", "aof_enabled:0"), "appendonly");
        refused(&good.replace("noeviction", "allkeys-lru"), "noeviction");
        refused(&good.replace("master", "slave"), "replica");
        refused(&good.replace("cluster_enabled:0", "cluster_enabled:1"), "cluster");
        check(&good.replace("aof_enabled:1", "aof_enabled:0"), true).unwrap();
    }
}
