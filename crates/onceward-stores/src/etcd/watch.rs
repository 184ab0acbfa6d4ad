//! Signals of changed records: etcd's own watch over the index, which every write changes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use onceward::{Id, Watch};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::api::{self, Watched};
use super::client::Client;
use super::http::Call;
use super::keys::{Keys, behind};
use crate::kit::signals::Broadcaster;

/// How long to wait before the watch is begun again.
const WATCH_AGAIN: Duration = Duration::from_secs(1);
/// A line that is longer than this is none of etcd's: entries have no values.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Passes signals on to the watchers of this process. Begins when there is the first of them.
#[derive(Default)]
pub(super) struct Watching {
    signals: Arc<Broadcaster>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Watching {
    /// `None` outside a tokio runtime: there is nothing that could wait for signals.
    pub(super) fn watch(&self, client: &Arc<Client>, keys: &Keys) -> Option<Watch> {
        let runtime = Handle::try_current().ok()?;
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // A task ends with its runtime.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (client, signals) = (Arc::downgrade(client), Arc::clone(&self.signals));
            *task = Some(runtime.spawn(listen(client, keys.clone(), signals)));
        }
        Some(self.signals.watch())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Listens until the store is gone. While the connection is lost, signals are too.
async fn listen(client: Weak<Client>, keys: Keys, signals: Arc<Broadcaster>) {
    loop {
        let Some(now) = client.upgrade() else { return };
        let entries = keys.entries();
        let body = Bytes::from(api::watch(&entries, &behind(&entries)).to_string());
        let begun = match now.token().await {
            Ok(token) => {
                now.http.stream(&Call { method: Method::POST, path: "/v3/watch", body, token }).await.ok()
            }
            Err(_) => None,
        };
        if begun.as_ref().is_some_and(|(_, answer)| answer.status() != http::StatusCode::OK) {
            now.log_out();
        }
        drop(now);
        if let Some((_connection, answer)) = begun {
            signals.announce_lost();
            let (mut body, mut line) = (answer.into_body(), Vec::new());
            while let Some(Ok(frame)) = body.frame().await {
                line.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if !announce(&mut line, &keys, &signals) || line.len() > LINE_BYTES_MAX {
                    break;
                }
            }
        }
        tokio::time::sleep(WATCH_AGAIN).await;
    }
}

/// Announces what the complete lines say, and removes them. False if the watch has ended.
fn announce(lines: &mut Vec<u8>, keys: &Keys, signals: &Broadcaster) -> bool {
    let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else { return true };
    let complete: Vec<u8> = lines.drain(..=end).collect();
    for line in complete.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(Watched { result: Some(result) }) = serde_json::from_slice(line) else { return false };
        let ids: Vec<Id> = result.events.iter().filter_map(|event| keys.entry_id(&event.kv.key)).collect();
        signals.announce(ids.iter());
        if result.canceled {
            return false;
        }
    }
    true
}
