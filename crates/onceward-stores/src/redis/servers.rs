//! The servers of a store: one, the primary that sentinels name, or the nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, Value};

use super::address::{Address, describe};
use super::cluster::Cluster;
use super::connection::{Endpoint, Node, SaidDurability};
use super::errors::CallEffect;
use super::keys::BUCKETS_MAX;
use super::scripts::Script;
use super::server_check::{Durability, Mode};
use crate::tls::{is_local, warn_unencrypted};

/// All servers of a store.
pub(super) struct Servers {
    layout: Layout,
    said: SaidDurability,
}

enum Layout {
    One(Arc<Node>),
    Cluster(Cluster),
}

impl Servers {
    /// Connects to what is at the address, whatever it is.
    pub(super) async fn connect(address: &Address, call_timeout: Duration) -> Result<Self> {
        let said = SaidDurability::default();
        let hosts = &address.hosts;
        for host in hosts {
            if let ConnectionAddr::Tcp(name, _) = host.addr()
                && !is_local(name)
            {
                warn_unencrypted(&describe(host.addr()));
            }
        }
        if let Some(name) = &address.sentinel {
            // The login before the host is the servers'; sentinels have none of it.
            let open =
                |host: &ConnectionInfo| open(host.clone().set_redis_settings(address.sentinel_login.clone()));
            let sentinels = hosts.iter().map(open).collect::<Result<_>>()?;
            let endpoint = Endpoint::Sentinels { sentinels, name: name.clone(), login: hosts[0].clone() };
            let node = Node::new(format!("the Redis primary `{name}`"), endpoint, call_timeout);
            node.greet().await?;
            return Ok(Self { layout: Layout::One(Arc::new(node)), said });
        }
        let node =
            Node::new(describe(hosts[0].addr()), Endpoint::Fixed(open(hosts[0].clone())?), call_timeout);
        // The first host of several may be down.
        let mode = match node.greet().await {
            Ok(state) => state.mode,
            Err(error) if hosts.len() == 1 => return Err(error),
            Err(_) => Mode::Cluster,
        };
        let refused = |why: String| Err(Error::new(ErrorKind::Invalid, why));
        match mode {
            Mode::Cluster => {
                let cluster = Cluster::connect(hosts, call_timeout, &said).await?;
                Ok(Self { layout: Layout::Cluster(cluster), said })
            }
            Mode::Standalone if hosts.len() == 1 => Ok(Self { layout: Layout::One(Arc::new(node)), said }),
            Mode::Standalone => refused(format!(
                "{} is a server of its own, and the address has several; give one, or the nodes of a cluster",
                node.server
            )),
            Mode::Sentinel => refused(format!(
                "{} is a sentinel; say which primary is meant, as in redis://host:26379/0?sentinel=mymaster",
                node.server
            )),
        }
    }

    /// How many buckets a new prefix is divided into. One server has nothing to divide, and each bucket would be a script
    /// call of its own, or at least have commands of its own in one.
    pub(super) fn buckets_of_new(&self) -> usize {
        match self.layout {
            Layout::One(_) => 1,
            Layout::Cluster(_) => BUCKETS_MAX,
        }
    }

    /// Runs a script on the server that has this bucket.
    pub(super) async fn call(
        &self,
        bucket: usize,
        script: Script,
        effect: CallEffect,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value> {
        match &self.layout {
            Layout::One(node) => {
                let called = node.call(&self.said, script, fill).await;
                called.map_err(|error| error.into_error(&node.server, effect))
            }
            Layout::Cluster(cluster) => cluster.call(&self.said, bucket, script, effect, fill).await,
        }
    }

    /// Sends a command that may be sent twice to the server that has this bucket.
    pub(super) async fn ask(&self, bucket: usize, command: &Cmd) -> Result<Value> {
        match &self.layout {
            Layout::One(node) => node.ask(&self.said, command).await,
            Layout::Cluster(cluster) => cluster.ask(&self.said, bucket, command).await,
        }
    }

    /// A server for signals. Each node of a cluster passes on all of them.
    pub(super) fn for_signals(&self) -> Arc<Node> {
        self.node(0)
    }

    /// How errors name the server of a bucket.
    pub(super) fn name(&self, bucket: usize) -> String {
        self.node(bucket).server.clone()
    }

    fn node(&self, bucket: usize) -> Arc<Node> {
        match &self.layout {
            Layout::One(node) => Arc::clone(node),
            Layout::Cluster(cluster) => cluster.owner(bucket),
        }
    }

    /// The least that any server has said about its durability.
    pub(super) fn durability(&self) -> Durability {
        self.said.least()
    }
}

fn open(host: ConnectionInfo) -> Result<Client> {
    let server = describe(host.addr());
    Client::open(host)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("{server} cannot be used")).caused_by(error))
}
