//! Signals of changed records: the ids that the script of a swap publishes, from any process.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use onceward::{Id, Watch};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::servers::Servers;
use crate::kit::signals::Broadcaster;

/// How long to wait before the channel is subscribed to again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(1);

/// Passes signals on to the watchers of this process. Subscribes to the channel when there is the first of them.
pub(super) struct Watching {
    channel: String,
    signals: Arc<Broadcaster>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Watching {
    pub(super) fn new(channel: &str) -> Self {
        Self { channel: channel.to_owned(), signals: Arc::default(), task: Mutex::default() }
    }

    /// `None` outside a tokio runtime: there is nothing that could wait for signals.
    pub(super) fn watch(&self, servers: &Arc<Servers>) -> Option<Watch> {
        let runtime = Handle::try_current().ok()?;
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // A task ends with its runtime.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (servers, signals) = (Arc::downgrade(servers), Arc::clone(&self.signals));
            *task = Some(runtime.spawn(subscribe(servers, self.channel.clone(), signals)));
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
async fn subscribe(servers: Weak<Servers>, channel: String, signals: Arc<Broadcaster>) {
    loop {
        let Some(now) = servers.upgrade() else { return };
        let subscribed = now.for_signals().subscribe(&channel).await;
        drop(now);
        if let Ok(mut subscribed) = subscribed {
            signals.announce_lost();
            let mut messages = subscribed.on_message();
            while let Some(message) = messages.next().await {
                signals.announce(ids(message.get_payload_bytes()).iter());
            }
        }
        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
    }
}

/// The message that these ids have changed.
pub(super) fn message<'a>(ids: impl Iterator<Item = &'a Id>) -> Vec<u8> {
    let mut message = Vec::new();
    for id in ids {
        let bytes = id.as_bytes();
        message.extend(u16::try_from(bytes.len()).expect("an id is short").to_be_bytes());
        message.extend(bytes);
    }
    message
}

/// The ids in a message, each with its length before it. Whatever else is published there is no id.
fn ids(mut message: &[u8]) -> Vec<Id> {
    let mut ids = Vec::new();
    while let Some((length, rest)) = message.split_first_chunk::<2>()
        && let Some((id, rest)) = rest.split_at_checked(u16::from_be_bytes(*length).into())
    {
        ids.extend(Id::from_bytes(id).ok());
        message = rest;
    }
    ids
}
