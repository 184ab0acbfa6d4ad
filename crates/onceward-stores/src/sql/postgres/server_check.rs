//! What a server is and says, when the store is opened: whether a connection is a session, and what a failover can
//! lose.

use deadpool_postgres::Pool;
use onceward::{Error, ErrorKind, Result};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::errors::{CallEffect, failed};

/// How often it is looked for two connections in one session.
const LOOKS: usize = 3;

/// Refuses a pooler that gives the sessions of the server to others between transactions: PgBouncer in the modes
/// `transaction` and `statement`. Settings of a connection, its statements and its time limits would be lost, or be those
/// of another program.
pub(super) async fn is_session(pool: &Pool, server: &str) -> Result<()> {
    let pooled = || {
        let detail = format!(
            "{server} is reached through a pooler that shares sessions between transactions, such as PgBouncer with pool_mode = transaction; connect to the server itself, or to a database of the pooler with pool_mode = session"
        );
        Error::new(ErrorKind::Unfit, detail)
    };
    // Also of a pool of one.
    let connections = pool.status().max_size;
    pool.resize(connections.max(2));
    let looked = check_session(pool, &pooled).await;
    pool.resize(connections);
    looked
}

async fn check_session(pool: &Pool, pooled: &impl Fn() -> Error) -> Result<()> {
    let (Ok(one), Ok(other)) = (pool.get().await, pool.get().await) else {
        // Whatever is wrong is told where it matters.
        return Ok(());
    };
    for _ in 0..LOOKS {
        let before = session(&one).await?;
        if let Err(error) = other.batch_execute("BEGIN").await {
            // PgBouncer's word in the mode `statement`.
            let said = error.as_db_error().is_some_and(|error| error.message().contains("pooling"));
            return if said { Err(pooled()) } else { Ok(()) };
        }
        let others = session(&other).await?;
        let after = session(&one).await?;
        other.batch_execute("ROLLBACK").await.map_err(|error| failed(CallEffect::Reads, error))?;
        if before == others || before != after {
            return Err(pooled());
        }
    }
    Ok(())
}

/// The number of the session. In the simple protocol: a pooler may not know prepared statements.
async fn session(client: &Client) -> Result<String> {
    let said = client.simple_query("SELECT pg_backend_pid()").await;
    let said = said.map_err(|error| failed(CallEffect::Reads, error))?;
    let row = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}

/// Says what a failover can lose, if anything.
pub(super) async fn say_losses(client: &Client, server: &str) {
    const SAID: &str =
        "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
        (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),
        (SELECT count(*) FROM pg_stat_replication)";
    let Ok(said) = client.simple_query(SAID).await else { return };
    let Some(row) = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    }) else {
        return;
    };
    let text = |at: usize| row.get(at).unwrap_or_default();
    if text(2) == "off" {
        tracing::info!("{server}: synchronous_commit is off; the connections of this store set it to on");
    }
    if let Some(loss) = failover_loss(text(0), text(1), text(3)) {
        tracing::warn!("{server}: {loss}, and a retry of a lost receipt's intent runs again");
    }
}

/// What a failover can lose.
fn failover_loss(synchronous_commit: &str, standby_names: &str, replicas: &str) -> Option<String> {
    if replicas == "0" || replicas.is_empty() {
        return None;
    }
    if standby_names.is_empty() {
        return Some(format!(
            "{replicas} replicas follow, and synchronous_standby_names is empty: a failover can lose the last acknowledged receipts"
        ));
    }
    (synchronous_commit == "local").then(|| {
        "synchronous_commit is local, so commits do not wait for replicas: a failover can lose the last acknowledged receipts"
            .to_owned()
    })
}

#[cfg(test)]
#[path = "server_check_test.rs"]
mod tests;
