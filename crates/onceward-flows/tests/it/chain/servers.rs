//! The servers of a chain, each its own, so that it can be killed.

use crate::engines::{Engine, MariaDb, Postgres, Sqlite};
use crate::servers::{self, Nats, RabbitMq, Redis};

/// The broker between the two services.
pub(super) enum Broker {
    Nats(Nats),
    Redis(Redis),
    RabbitMq(RabbitMq),
}

impl Broker {
    pub(super) fn url(&self) -> String {
        match self {
            Self::Nats(server) => server.url(),
            Self::Redis(server) => format!("redis://127.0.0.1:{}/0", server.port()),
            Self::RabbitMq(server) => server.url(),
        }
    }

    pub(super) async fn kill_and_restart(&mut self) {
        match self {
            Self::Nats(server) => crate::nats::kill_and_restart(server, super::STREAM).await,
            Self::Redis(server) => {
                server.kill();
                server.up();
            }
            Self::RabbitMq(server) => {
                server.kill();
                server.up();
            }
        }
    }
}

/// An engine with a server of its own.
pub(super) trait ChainEngine: Engine {
    type Databases: Databases;
}

impl ChainEngine for Postgres {
    type Databases = servers::Postgres;
}

impl ChainEngine for MariaDb {
    type Databases = servers::MariaDb;
}

impl ChainEngine for Sqlite {
    type Databases = Files;
}

/// The databases of the services.
pub(super) trait Databases: Sized {
    /// Whether there is a server that can be killed.
    const HAS_SERVER: bool = true;

    /// `None` if it is not installed, which was reported.
    fn start() -> Option<Self>;

    /// The address of a fresh database.
    fn database(&self, name: &str) -> String;

    fn kill_and_restart(&mut self);
}

impl Databases for servers::Postgres {
    fn start() -> Option<Self> {
        Self::start()
    }

    fn database(&self, name: &str) -> String {
        self.database(name)
    }

    fn kill_and_restart(&mut self) {
        self.kill();
        self.up();
    }
}

impl Databases for servers::MariaDb {
    fn start() -> Option<Self> {
        Self::start()
    }

    fn database(&self, name: &str) -> String {
        self.database(name)
    }

    fn kill_and_restart(&mut self) {
        self.kill();
        self.up();
    }
}

/// SQLite: files that the processes share.
pub(super) struct Files(tempfile::TempDir);

impl Databases for Files {
    const HAS_SERVER: bool = false;

    fn start() -> Option<Self> {
        Some(Self(tempfile::Builder::new().prefix("onceward-").tempdir().unwrap()))
    }

    fn database(&self, name: &str) -> String {
        format!("sqlite:{}", self.0.path().join(name).with_extension("db").display())
    }

    fn kill_and_restart(&mut self) {
        unreachable!("there is no server")
    }
}
