//! Connections: turns an address into a pool and sets up each connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use onceward::{Error, ErrorKind, Result};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, Socket};

use super::server_check::is_session;
use crate::sql::Options;
use crate::sql::error_text::{Explained, root, server};
use crate::tls::{self, TlsSettings};

/// An acknowledged commit must be on disk. A stronger setting of the user is kept.
pub(super) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'";
/// A connection is tried for this long.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What makes the connections of an address.
#[cfg(feature = "tls")]
pub(super) type Connector = super::tls::Rustls;
#[cfg(not(feature = "tls"))]
pub(super) type Connector = tokio_postgres::NoTls;

/// Reads an address: where the database is, and how far the way to it must be protected.
pub(super) fn parse(url: &str) -> Result<(Config, Connector)> {
    // The front is opened by `open_with_metrics`.
    let (url, _) = crate::open::front::take(url)?;
    let (url, tls) = TlsSettings::take(&url)?;
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        Error::new(
            ErrorKind::Invalid,
            "this is no address of a PostgreSQL database; it looks like postgres://user:password@host:5432/database",
        )
        .caused_by(Explained::new(root(&error).to_string(), error))
    })?;
    // The form without `://` has been read by the driver.
    let said = match config.get_ssl_mode() {
        SslMode::Disable => tls::SslMode::Disable,
        SslMode::Require => tls::SslMode::Require,
        _ => tls::SslMode::Prefer,
    };
    let mode = tls.usable_mode(said)?;
    config.ssl_mode(match mode {
        tls::SslMode::Disable => SslMode::Disable,
        tls::SslMode::Prefer => SslMode::Prefer,
        _ => SslMode::Require,
    });
    if config.get_application_name().is_none() {
        config.application_name("onceward");
    }
    #[cfg(feature = "tls")]
    let connector = super::tls::Rustls(tls.client_config(mode)?);
    #[cfg(not(feature = "tls"))]
    let connector = tokio_postgres::NoTls;
    Ok((config, connector))
}

/// Whether any of the hosts is another machine.
pub(super) fn is_remote(config: &Config) -> bool {
    let is_remote_host = |host: &Host| matches!(host, Host::Tcp(name) if !tls::is_local(name));
    config.get_hosts().iter().any(is_remote_host) || config.get_hostaddrs().iter().any(|at| !at.is_loopback())
}

/// The server and the database as errors name them, such as "PostgreSQL at 127.0.0.1:5432, database `app`".
pub(super) fn describe(config: &Config) -> String {
    const PORT: u16 = 5432;
    let ports = config.get_ports();
    // One port is for all hosts; otherwise each has its own.
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(at)),
        Host::Unix(folder) => format!("{}, port {}", folder.display(), port(at)),
    });
    let mut hosts: Vec<String> = hosts.collect();
    if hosts.is_empty() {
        let addresses = config.get_hostaddrs().iter().enumerate();
        hosts.extend(addresses.map(|(at, address)| SocketAddr::new(*address, port(at)).to_string()));
    }
    // The server takes the name of the user where the address names no database.
    server("PostgreSQL", &hosts.join(" or "), config.get_dbname().or(config.get_user()))
}

pub(super) fn pool<T>(config: Config, tls: T, options: &Options, set_up: &str) -> Pool
where
    T: tokio_postgres::tls::MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + Sync,
    T::TlsConnect: Send + Sync,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    counted_pool(config, tls, options, set_up, Arc::default())
}

/// A pool that counts the connections that it has opened.
pub(super) fn counted_pool<T>(
    mut config: Config,
    tls: T,
    options: &Options,
    set_up: &str,
    opened: Arc<AtomicU64>,
) -> Pool
where
    T: tokio_postgres::tls::MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + Sync,
    T::TlsConnect: Send + Sync,
    <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
{
    // A standby must not be used: it may lag behind.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_MAX);
    }
    let set_up = set_up.to_owned();
    let manager =
        Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    Pool::builder(manager)
        .max_size(options.connections.max(1))
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait: Some(options.call_timeout()),
            create: Some(options.call_timeout()),
            recycle: Some(options.call_timeout()),
        })
        .post_create(Hook::async_fn(move |client, _| {
            let set_up = set_up.clone();
            opened.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { client.batch_execute(&set_up).await.map_err(HookError::Backend) })
        }))
        .build()
        .expect("the pool has a runtime for its time limits")
}

/// A pool for tables other than the receipts, and the name of its server; each connection begins with `set_up`. For the
/// other crates of this project.
#[doc(hidden)]
pub async fn pool_of(url: &str, options: &Options, set_up: &str) -> Result<(Pool, String)> {
    let (config, tls) = parse(url)?;
    let (server, is_remote) = (describe(&config), is_remote(&config));
    let pool = pool(config, tls, options, set_up);
    is_session(&pool, &server).await?;
    if is_remote && let Ok(client) = pool.get().await {
        let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let encrypted = client.query_opt(encrypted, &[]).await.ok().flatten();
        if !encrypted.is_some_and(|row| row.get::<_, bool>(0)) {
            tls::warn_unencrypted(&server);
        }
    }
    Ok((pool, server))
}

/// The settings of every connection. The planner must look up the ids of a batch one by one in their order,
/// whatever it believes about the size of the table: that keeps batches from deadlocking, and a plan made for an empty table from being used on a large one.
pub(super) fn set_up(call_timeout: Duration) -> String {
    let limit = call_timeout.as_millis();
    format!(
        "SET default_transaction_isolation = 'read committed'; SET statement_timeout = {limit};
         SET idle_in_transaction_session_timeout = {limit};
         SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
         SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan;
         {DURABLE}"
    )
}

#[cfg(test)]
#[path = "connect_test.rs"]
mod tests;
