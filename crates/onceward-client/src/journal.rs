//! The journal: one receipt per intent, in any durable store. It carries the request until it has the answer.
//!
//! ```text
//!  (name, "send", intent)   held      somebody sends the request that is in it
//!                           waiting   nobody does at present: it is open
//!                           done      the answer
//!                           unknown   nobody can tell what became of it, and nobody sends it
//! ```
//!
//! A call writes it twice: the claim with the request in it before the first byte leaves, the answer behind the
//! last. What a crash leaves, in the order in which a call comes by:
//!
//! | when | what is there | what happens next |
//! |---|---|---|
//! | before the claim is durable | nothing | nothing was sent, nobody was promised anything |
//! | claimed | held, request | resumed: sent with this key for the first time |
//! | sent | held, request | resumed: the same bytes under the same key; the server runs it or replays |
//! | answered | held, request | the same; the server replays |
//! | recorded | done | nothing is open; the intent's name gives the recorded answer |
//!
//! A call that gave up leaves the intent waiting. One whose key the server may have forgotten becomes unknown,
//! and stays so until somebody settles it.
//!
//! **Nobody sends a request that is not in the receipt that they hold.** A call that finds an open intent sends
//! the request that is in it, never its own copy, and a resumption claims exactly the receipt that it found.
//! So what a settlement has ended is not sent by anybody who looked before.
//!
//! **What a call waits for.** Before the first byte, for one sync. Behind the last byte, for nothing: the
//! caller gets the answer while it is being recorded. Until that is done the intent is held, so a crash leaves
//! the row "answered": it is asked for again under the same key, and what the server no longer honours is
//! unknown, never sent. So nothing is forgotten and nothing is done twice; what is lost is the certainty that
//! an answer which was read needs no second asking, and [`Journal::recorded`] is how to wait for that. Answers
//! do not pile up unrecorded: the next claim queues behind them in the same store.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use onceward::{
    Ask, Backoff, Changed, Clock, ErrorKind, Fingerprint, Id, KeepInput, Lease, Limits, OnDuplicate,
    OnFailure, OnUnknown, Onceward, Outcome, Policy, Result, Seen, Store, Swap, Swapped, Sweep, TRIES_MAX,
    Ticket, Version, WAIT_MAX,
};
use tokio::sync::watch;

use super::client::Opening;
use super::prepared::Prepared;
use super::stored::Stored;
use onceward_http::snapshot::{self, Omitted};

/// What every intent's operation is. The name of an intent is unique in a journal, wherever it goes:
/// were the URL part of its id, a corrected URL would make a second intent of it.
pub(crate) const OPERATION: &str = "send";

/// Room for all that is kept beside a body: the status and the fields of an answer, the URL and the fields of a
/// request.
const FIELDS_BYTES_MAX: usize = 256 << 10;

/// The largest bound on a request that the engine takes.
const INPUT_BYTES_MAX: usize = 1 << 30;

pub(crate) struct Journal {
    pub(crate) onceward: Onceward,
    store: Arc<dyn Store>,
    pub(crate) name: String,
    clock: Arc<dyn Clock>,
    pub(crate) sending: Arc<Policy>,
    /// As `sending`, but what is in doubt is held.
    holding: Arc<Policy>,
    omitted: Omitted,
    /// How many answers were handed out and are being recorded.
    recording: watch::Sender<usize>,
}

impl Journal {
    pub(crate) async fn open(opening: &Opening) -> Result<Arc<Self>> {
        let store = (opening.open)().await?;
        let limits = Limits::default()
            .with_body_bytes_max(opening.answer_bytes_max.saturating_add(FIELDS_BYTES_MAX))
            .with_input_bytes_max(
                opening.request_bytes_max.saturating_add(FIELDS_BYTES_MAX).min(INPUT_BYTES_MAX),
            );
        // The key makes it harmless to send again what a dead process may have sent. How often that is done, and
        // when, is for the terms of the client to say, not for the receipt.
        let policy = Policy::http()
            .to_builder()
            .with_on_unknown(OnUnknown::Retry)
            .with_on_failure(OnFailure::Replay)
            .with_on_duplicate(OnDuplicate::Wait(WAIT_MAX))
            .with_retention(opening.keep)
            .with_keep_input(KeepInput::UntilDone)
            .with_backoff(Backoff::new(Duration::ZERO, Duration::ZERO))
            .with_tries_max(TRIES_MAX)
            .build()?;
        Id::new(&opening.name, OPERATION, "name")?;
        Ok(Arc::new(Self {
            onceward: Onceward::builder(store.clone()).with_limits(limits).build()?,
            store,
            name: opening.name.clone(),
            clock: opening.clock.clone(),
            holding: Arc::new(policy.to_builder().with_on_unknown(OnUnknown::Hold).build()?),
            sending: Arc::new(policy),
            omitted: Omitted::default(),
            recording: watch::Sender::new(0),
        }))
    }

    pub(crate) fn id(&self, intent: &str) -> Result<Id> {
        Id::new(&self.name, OPERATION, intent)
    }

    /// The ask of a caller, who waits if somebody is sending it already.
    pub(crate) fn ask(&self, id: &Id, fingerprint: Fingerprint, input: Bytes) -> Ask {
        Ask::new(id.clone(), fingerprint, self.sending.clone()).with_input(input)
    }

    /// A request that is about to be written down.
    pub(crate) fn stored(&self, request: Box<Prepared>, honoured_for: Duration) -> Stored {
        let put_us = self.clock.now_us();
        Stored { put_us, honoured_until_us: after(put_us, honoured_for), request: request.into() }
    }

    /// The request that a receipt carries.
    pub(crate) fn read(id: &Id, input: Option<&Bytes>) -> Result<Stored> {
        input.and_then(Stored::decode).ok_or_else(|| {
            let detail = format!("the journal's request of {:?} cannot be read", id.key());
            onceward::Error::new(ErrorKind::Damaged, detail)
        })
    }

    /// How long the server still honours the key of a request.
    pub(crate) fn honoured_for(&self, stored: &Stored) -> Option<Duration> {
        stored.honoured_for(self.clock.now_us())
    }

    /// Writes down that the server has said how long it honours the key, so that a resumption knows.
    pub(crate) async fn honoured(&self, lease: &Lease, stored: &Stored, left: Duration) {
        let honoured_until_us = after(self.clock.now_us(), left);
        let Ok(input) = (Stored { honoured_until_us, ..stored.clone() }).encode() else { return };
        if let Err(error) = lease.replace_input(input).await {
            tracing::warn!(%error, "how long the server honours a key could not be written down");
        }
    }

    /// Writes down that nobody can tell what became of the request that is held, so that nobody sends it again.
    pub(crate) async fn doubt(&self, lease: &Lease) -> Result<()> {
        let ticket = Ticket::new(lease.id().clone(), lease.attempt(), lease.fence(), self.holding.clone());
        match self.onceward.mark_unknown(&ticket).await? {
            Changed::Applied => Ok(()),
            Changed::NotOwner(_) => {
                let detail = "somebody else has the intent by now";
                Err(onceward::Error::new(ErrorKind::LeaseLost, detail))
            }
        }
    }

    /// Gives a name back: its receipt goes, with the request in it, if it is still the one that was looked at.
    /// The engine would have the same request tried again instead; here the next one of the name is another
    /// intent, with another key.
    pub(crate) async fn free(&self, id: &Id, version: Version) -> Result<Freed> {
        let swap = Swap { id: id.clone(), seen: Seen::Version(version), new: None };
        match self.store.swap(std::slice::from_ref(&swap)).await?.pop() {
            Some(Swapped::Won(_)) => Ok(Freed::Yes),
            Some(Swapped::Lost(_)) => Ok(Freed::Changed),
            Some(Swapped::Failed(error)) => Err(error),
            None => Err(onceward::Error::new(ErrorKind::Damaged, "the store gave no answer").maybe_applied()),
        }
    }

    /// Removes answers that are past their retention, and whatever else the store keeps until somebody sweeps. Within
    /// a bound: the next time goes on.
    pub(crate) async fn sweep(&self) {
        if let Err(error) = self.onceward.sweep(&Sweep::default()).await {
            tracing::warn!(%error, "the journal could not be swept, trying again at the next resumption");
        }
    }

    /// Lets the rest of a call go on beside its caller, who has the answer: it is being recorded.
    pub(crate) fn record_beside(self: &Arc<Self>, rest: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let recording = Recording::begin(self.clone());
        tokio::spawn(async move {
            rest.await;
            drop(recording);
        });
    }

    /// Waits until no answer is being recorded any more.
    pub(crate) async fn recorded(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.recording.subscribe().wait_for(|recording| *recording == 0).await;
    }

    /// An answer as its intent's outcome.
    pub(crate) fn outcome(&self, response: &Response<Bytes>) -> Outcome {
        let status = response.status();
        let bytes = snapshot::encode(status, response.headers(), response.body(), &self.omitted);
        if status.is_client_error() || status.is_server_error() {
            Outcome::failed(bytes)
        } else {
            Outcome::succeeded(bytes)
        }
    }
}

/// What became of a name that was to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// It is free.
    Yes,
    /// Its receipt is another by now; nothing was changed.
    Changed,
}

fn after(now_us: u64, left: Duration) -> u64 {
    now_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
}

/// One answer that is being recorded, however that ends.
struct Recording(Arc<Journal>);

impl Recording {
    fn begin(journal: Arc<Journal>) -> Self {
        journal.recording.send_modify(|recording| *recording += 1);
        Self(journal)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.0.recording.send_modify(|recording| *recording -= 1);
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let store = self.store.caps().name;
        f.debug_struct("Journal").field("name", &self.name).field("store", &store).finish_non_exhaustive()
    }
}
