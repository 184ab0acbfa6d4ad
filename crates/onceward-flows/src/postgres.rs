//! The tables of messages in PostgreSQL: migrations, and what relays and consumers do beside the user's transactions.

mod dead_letters;
mod errors;
mod outbox;
mod parts;
mod schema;
mod statements;
mod tries;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use onceward::Result;
use onceward_stores::sql::{Migrations, Options, named};

pub(crate) use errors::{Call, failed};
pub(crate) use statements::STATEMENTS;

pub use crate::tables::{Backlog, FlowTables, Migrated};

/// Longest time for one statement, and for a connection.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 4;

/// The tables for messages in one PostgreSQL database.
#[derive(Clone)]
pub(crate) struct PostgresTables {
    pool: Pool,
    server: Arc<str>,
}

impl PostgresTables {
    pub(crate) async fn open(url: &str, migrations: Migrations) -> Result<Self> {
        let tables = Self::connect(url).await?;
        tables.prepare(migrations).await.map_err(|error| named(&tables.server, error))?;
        Ok(tables)
    }

    pub(crate) fn from_pool(pool: Pool) -> Self {
        Self { pool, server: "PostgreSQL".into() }
    }

    /// The server and the database, for errors.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) async fn prepare(&self, migrations: Migrations) -> Result<Migrated> {
        schema::prepare(&mut *self.connection().await?, migrations).await
    }

    /// What an address says of TLS holds here, too.
    async fn connect(url: &str) -> Result<Self> {
        let set_up = format!(
            "SET default_transaction_isolation = 'read committed'; SET statement_timeout = {0};
             SET idle_in_transaction_session_timeout = {0}; SET jit = off;
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off'",
            CALL_MAX.as_millis()
        );
        let options = Options::default().with_connections(CONNECTIONS).with_call_timeout(CALL_MAX);
        let (pool, server) = onceward_stores::sql::postgres::pool_of(url, &options, &set_up).await?;
        Ok(Self { pool, server: server.into() })
    }

    pub(crate) async fn connection(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| errors::unconnected(&self.server, &error))
    }
}

impl std::fmt::Debug for PostgresTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTables").field("server", &self.server).finish_non_exhaustive()
    }
}
