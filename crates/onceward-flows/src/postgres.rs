//! The tables of messages in PostgreSQL: migrations, and what relays and consumers do beside the user's transactions.

pub(crate) mod dead_letters;
mod errors;
pub(crate) mod outbox;
pub(crate) mod parts;
mod schema;
pub(crate) mod tries;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use onceward::{Error, ErrorKind, Result};
use onceward_stores::sql::Migrations;
use tokio_postgres::NoTls;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

pub(crate) use errors::{Call, failed};
pub use outbox::Backlog;
pub use schema::Migrated;

/// Longest time for one statement, and for a connection.
const CALL_MAX: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 4;

/// The tables for messages in one PostgreSQL database: outbox, parts, dead letters, versions. Cheap to clone.
#[derive(Clone)]
pub struct FlowTables {
    pool: Pool,
    server: Arc<str>,
}

impl FlowTables {
    /// Opens the database that an address names, with a few connections of its own, and brings the tables up to date.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, Migrations::Apply).await
    }

    /// The same, and says whether the tables may be brought up to date.
    pub async fn open_with(url: &str, migrations: Migrations) -> Result<Self> {
        let tables = Self::connect(url)?;
        schema::prepare(&mut *tables.connection().await?, migrations).await?;
        Ok(tables)
    }

    /// The same over a pool of the caller's own.
    pub async fn from_pool(pool: Pool) -> Result<Self> {
        let tables = Self { pool, server: "PostgreSQL".into() };
        tables.migrate().await?;
        Ok(tables)
    }

    /// Brings the tables up to date. Takes the right to create tables; without anything to do, it only reads.
    pub async fn migrate(&self) -> Result<Migrated> {
        schema::prepare(&mut *self.connection().await?, Migrations::Apply).await
    }

    fn connect(url: &str) -> Result<Self> {
        let mut config: tokio_postgres::Config = url.parse().map_err(|error: tokio_postgres::Error| {
            Error::new(
                ErrorKind::Invalid,
                "this is no address of a PostgreSQL database; it looks like postgres://user:password@host:5432/database",
            )
            .caused_by(error)
        })?;
        if config.get_ssl_mode() == SslMode::Require {
            let detail =
                "an address cannot bring TLS with it; use FlowTables::from_pool with a pool that has it";
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        // A standby must not be used: it may lag behind.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite).connect_timeout(Duration::from_secs(5));
        if config.get_application_name().is_none() {
            config.application_name("onceward-flows");
        }
        let server = match (config.get_hosts().first(), config.get_dbname()) {
            (Some(tokio_postgres::config::Host::Tcp(host)), Some(database)) => {
                format!("PostgreSQL at {host}, database `{database}`")
            }
            _ => "PostgreSQL".to_owned(),
        };
        let manager =
            Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts { wait: Some(CALL_MAX), create: Some(CALL_MAX), recycle: Some(CALL_MAX) })
            .post_create(Hook::async_fn(|client, _| {
                let set_up = format!(
                    "SET default_transaction_isolation = 'read committed'; SET statement_timeout = {0};
                     SET idle_in_transaction_session_timeout = {0}; SET jit = off;
                     SELECT set_config('synchronous_commit', 'on', false)
                     WHERE current_setting('synchronous_commit') = 'off'",
                    CALL_MAX.as_millis()
                );
                Box::pin(async move { client.batch_execute(&set_up).await.map_err(HookError::Backend) })
            }))
            .build()
            .expect("the pool has a runtime for its time limits");
        Ok(Self { pool, server: server.into() })
    }

    pub(crate) async fn connection(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| errors::unconnected(&self.server, error))
    }
}

impl std::fmt::Debug for FlowTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowTables").field("server", &self.server).finish_non_exhaustive()
    }
}
