//! A database with the tables for messages, and what every test needs of it.

use std::sync::{Arc, Mutex, MutexGuard};

use onceward_flows::postgres::FlowTables;
use tokio_postgres::{Client, NoTls};

use crate::servers::Postgres;

/// A fresh database of the server that all tests share.
pub(crate) struct Database {
    pub(crate) server: &'static Postgres,
    pub(crate) name: String,
    pub(crate) tables: FlowTables,
}

impl Database {
    /// `None` if PostgreSQL is not installed; that was reported.
    pub(crate) async fn fresh() -> Option<Self> {
        let server = Postgres::shared()?;
        let name = server.fresh();
        let tables = FlowTables::open(&server.url(&name)).await.unwrap();
        Some(Self { server, name, tables })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// A connection of the test's own.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A server that a test kills while its futures go on.
pub(crate) struct Killed<S>(Arc<Mutex<S>>);

impl<S: Send + 'static> Killed<S> {
    pub(crate) fn new(server: S) -> Self {
        Self(Arc::new(Mutex::new(server)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.0.lock().unwrap()
    }

    /// Calls what blocks, in a thread of its own.
    pub(crate) async fn with(&self, call: impl FnOnce(&mut S) + Send + 'static) {
        let server = self.0.clone();
        tokio::task::spawn_blocking(move || call(&mut server.lock().unwrap())).await.unwrap();
    }
}

/// A small generator of random numbers, so that a failing run can be repeated by its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Prints what is logged, with `RUST_LOG` set: for finding out why a test fails.
pub(crate) fn logged() {
    if std::env::var_os("RUST_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
    }
}
