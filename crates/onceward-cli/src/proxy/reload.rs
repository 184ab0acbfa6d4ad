//! Reloads the routes and the certificates on SIGHUP and when their files change, without dropping a request. An invalid
//! file changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::Signal;

use super::known_identities::{self, NewIdentity};
use super::route_table::RouteTable;
use super::secrets_in_use;
use super::serve::Gateway;
use super::tls::ClientTls;
use crate::config::Settings;

/// How often the file is checked. Polling also works where files are replaced by links, as container platforms do.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The modification time and the size of a file.
type FileVersion = Option<(SystemTime, u64)>;

/// Reloads the routes whenever the file changes. Never returns. Without a file SIGHUP does nothing, and does not end the
/// process.
pub async fn watch_file(gateway: Arc<Gateway>, file: Option<(PathBuf, Settings)>, mut hangup: Signal) {
    let Some((path, mut settings)) = file else {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP: there is no configuration file to read again");
        }
        return;
    };
    let mut seen = file_version(&path);
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let now = file_version(&path);
        if !asked && (now == seen || now.is_none()) {
            continue;
        }
        seen = now;
        match reload(&gateway, &path, &settings).await {
            Ok(new) => settings = new,
            Err(error) => {
                tracing::error!(%error, "the configuration was not reloaded; the old one stays in effect");
            }
        }
    }
}

/// Reads the certificates again whenever one of their files changes. Never returns.
pub async fn watch_certificates(tls: Arc<ClientTls>, mut hangup: Signal) {
    let versions = || tls.files().paths().map(file_version).collect::<Vec<_>>();
    let mut seen = versions();
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let now = versions();
        if !asked && now == seen {
            continue;
        }
        match tls.reload() {
            Ok(()) => tracing::info!("the certificates were reloaded"),
            // The key may be written a moment after the certificate: the next change is a new try.
            Err(error) => {
                tracing::error!(%error, "the certificates were not reloaded; the old ones stay in effect");
            }
        }
        seen = now;
    }
}

async fn reload(gateway: &Gateway, path: &Path, old: &Settings) -> Result<Settings, String> {
    let (new, routes) = Settings::read(path)?;
    gateway.check(&routes)?;
    let _rebuilding = gateway.rebuilding.lock().await;
    // Receipts may be kept longer from now on.
    let (onceward, secrets) = (&gateway.state.onceward, &gateway.state.secrets);
    secrets_in_use::renew(onceward, secrets, known_identities::kept(&routes)).await?;
    let former = known_identities::exchange(
        &gateway.state.onceward,
        &routes,
        gateway.state.path_rules,
        NewIdentity::ClaimBoth,
    )
    .await?;
    let table = RouteTable::new(&gateway.state, &routes, former)?;
    gateway.table.store(Arc::new(table));
    let waiting = new.changed(old);
    if !waiting.is_empty() {
        tracing::warn!(values = waiting.join(", "), "these settings change only with a restart");
    }
    tracing::info!(routes = routes.list.len(), "the routes were reloaded");
    Ok(new)
}

fn file_version(path: &Path) -> FileVersion {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}
