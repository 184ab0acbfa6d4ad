//! Where the primary is, according to sentinels. They are asked at every connection.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult, cmd};

use super::address::describe;
use crate::tls::{is_local, warn_unencrypted};

/// How long one sentinel may take to answer.
const SENTINEL_MAX: Duration = Duration::from_secs(2);

/// A client for the primary of this name.
pub(super) async fn primary(sentinels: &[Client], name: &str, login: &ConnectionInfo) -> Result<Client> {
    let (mut last, mut refusal) = (None, None);
    for sentinel in sentinels {
        match ask(sentinel, name).await {
            Ok(Some((host, port))) => return client(login, host, port),
            Ok(None) => last = Some(format!("the sentinel at {} knows no primary `{name}`", at(sentinel))),
            Err(error) if is_refusal(&error) => refusal = Some((at(sentinel), error)),
            Err(error) => last = Some(format!("the sentinel at {}: {error}", at(sentinel))),
        }
    }
    let wanted = format!("no sentinel says where the primary `{name}` of Redis is");
    let Some((refusing, error)) = refusal else {
        let detail = format!(
            "{wanted}: {}; correct the address, as in redis://sentinel:26379/0?sentinel=mymaster",
            last.unwrap_or_default()
        );
        return Err(Error::new(ErrorKind::Unavailable, detail));
    };
    // What the others have will pass by itself, and what this one wants will not.
    let kind = if last.is_some() { ErrorKind::Unavailable } else { ErrorKind::Invalid };
    let detail = format!(
        "{wanted}: the sentinel at {refusing} does not let this client in, or not ask; correct the sentinels' own password in the address (sentinel_password=…, and sentinel_user=… for a user who may call SENTINEL GET-MASTER-ADDR-BY-NAME): the login before the host is that of the servers"
    );
    Err(Error::new(kind, detail).caused_by(error))
}

/// Whether a sentinel wants another login.
fn is_refusal(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
}

async fn ask(sentinel: &Client, name: &str) -> RedisResult<Option<(String, u16)>> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SENTINEL_MAX))
        .set_response_timeout(Some(SENTINEL_MAX));
    let mut connection = sentinel.get_multiplexed_async_connection_with_config(&config).await?;
    cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).query_async(&mut connection).await
}

/// A client for another host, with the same login.
pub(super) fn client(login: &ConnectionInfo, host: String, port: u16) -> Result<Client> {
    let addr = match login.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    warn_once(login, &addr);
    Client::open(login.clone().set_addr(addr)).map_err(|error| {
        Error::new(ErrorKind::Invalid, "this server of Redis cannot be used").caused_by(error)
    })
}

/// Says that a server which a sentinel or a cluster has named is reached unencrypted; the hosts of the address were
/// looked at when it was opened. Once for each server: sentinels are asked at every connection.
fn warn_once(login: &ConnectionInfo, addr: &ConnectionAddr) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if let ConnectionAddr::Tcp(host, _) = addr
        && !is_local(host)
        && addr != login.addr()
    {
        let server = describe(addr);
        if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(server.clone()) {
            warn_unencrypted(&server);
        }
    }
}

fn at(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}
