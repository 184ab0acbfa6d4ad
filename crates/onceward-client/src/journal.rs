//! The journal: one receipt per intent, in any durable store. The receipt holds the request until it holds the answer.
//!
//! ```text
//!  (name, "send", intent)   held      a call is sending the request that is in it
//!                           waiting   open: no call is sending it at present
//!                           done      the answer
//!                           unknown   the outcome is unknown, and it is not sent again
//! ```
//!
//! A call writes it twice: the claim with the request in it before the first byte is sent, the answer after
//! the last byte arrived. What a crash leaves, by the step that a call had reached:
//!
//! | when | what is there | what happens next |
//! |---|---|---|
//! | before the claim is durable | nothing | nothing was sent |
//! | claimed | held, request | resumed: sent with this key for the first time |
//! | sent | held, request | resumed: the same bytes under the same key; the server runs it or replays |
//! | answered | held, request | the same; the server replays |
//! | recorded | done | nothing is open; the intent's name gives the recorded answer |
//!
//! A call that gave up leaves the intent waiting. One whose key the server may have forgotten becomes unknown,
//! and stays unknown until it is settled.
//!
//! **A call sends only the request that is in the receipt that it holds.** A call that finds an open intent sends
//! the request that is in it, never its own copy, and a resumption claims exactly the receipt that it found.
//! So a request that was settled is not sent by a call that read the receipt before.
//!
//! **What a call waits for.** Before the first byte, for one sync. After the last byte, for nothing: the
//! caller gets the answer while it is being recorded. Until that is done the intent is held, so a crash leaves
//! the row "answered": it is asked for again under the same key, and what the server no longer honours is
//! unknown, never sent. So nothing is forgotten and nothing is done twice; what is lost is the certainty that
//! an answer which was read needs no second request, and [`Journal::recorded`] waits for that. Unrecorded answers
//! do not accumulate: the next claim queues behind them in the same store.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Response};
use onceward::{
    Ask, Backoff, Changed, Clock, ErrorKind, Fingerprint, Id, KeepInput, Lease, Limits, OnDuplicate,
    OnFailure, OnUnknown, Onceward, Outcome, Policy, Result, Store, Sweep, TRIES_MAX, Ticket, WAIT_MAX,
};
use tokio::sync::watch;

use super::client::JournalOptions;
use super::prepared_request::PreparedRequest;
use super::stored_request::StoredRequest;
use onceward_http::snapshot::{self, Omitted};

/// The operation in the id of every intent. The URL is not part of the id, because a corrected URL would then make
/// a second intent.
pub(crate) const OPERATION: &str = "send";

/// Bytes allowed besides the body: the status and the header fields of an answer, the URL and the header fields of
/// a request.
const FIELDS_BYTES_MAX: usize = 256 << 10;

/// The largest input limit that the engine accepts.
const INPUT_BYTES_MAX: usize = 1 << 30;

pub(crate) struct Journal {
    pub(crate) onceward: Onceward,
    store: Arc<dyn Store>,
    pub(crate) name: String,
    clock: Arc<dyn Clock>,
    pub(crate) sending: Arc<Policy>,
    /// As `sending`, but an unknown outcome is not retried.
    holding: Arc<Policy>,
    omitted: Omitted,
    /// Number of answers that were returned and are still being recorded.
    recording: watch::Sender<usize>,
}

impl Journal {
    pub(crate) async fn open(options: &JournalOptions) -> Result<Arc<Self>> {
        let store = (options.open)().await?;
        let limits = Limits::default()
            .with_body_bytes_max(options.answer_bytes_max.saturating_add(FIELDS_BYTES_MAX))
            .with_input_bytes_max(
                options.request_bytes_max.saturating_add(FIELDS_BYTES_MAX).min(INPUT_BYTES_MAX),
            );
        // The key makes it safe to send again what a dead process may have sent. The number of tries and the
        // pauses follow the client's `RetryConfig`, not the receipt.
        let policy = Policy::http()
            .to_builder()
            .with_on_unknown(OnUnknown::Retry)
            .with_on_failure(OnFailure::Replay)
            .with_on_duplicate(OnDuplicate::Wait(WAIT_MAX))
            .with_retention(options.keep)
            .with_keep_input(KeepInput::UntilDone)
            .with_backoff(Backoff::new(Duration::ZERO, Duration::ZERO))
            .with_tries_max(TRIES_MAX)
            .build()?;
        Id::new(&options.name, OPERATION, "name")?;
        Ok(Arc::new(Self {
            onceward: Onceward::builder(store.clone()).with_limits(limits).build()?,
            store,
            name: options.name.clone(),
            clock: options.clock.clone(),
            holding: Arc::new(policy.to_builder().with_on_unknown(OnUnknown::Hold).build()?),
            sending: Arc::new(policy),
            omitted: Omitted::default(),
            recording: watch::Sender::new(0),
        }))
    }

    pub(crate) fn id(&self, intent: &str) -> Result<Id> {
        Id::new(&self.name, OPERATION, intent)
    }

    /// The ask of a caller. It waits if another call is sending the intent already.
    pub(crate) fn ask(&self, id: &Id, fingerprint: Fingerprint, input: Bytes) -> Ask {
        Ask::new(id.clone(), fingerprint, self.sending.clone()).with_input(input)
    }

    /// A request as it will be stored.
    pub(crate) fn stored(
        &self,
        request: Box<PreparedRequest>,
        honoured_for: Duration,
        credentials: &[HeaderName],
    ) -> StoredRequest {
        let put_us = self.clock.now_us();
        StoredRequest {
            put_us,
            honoured_until_us: after(put_us, honoured_for),
            request: request.into(),
            credentials: credentials.to_vec(),
        }
    }

    /// Decodes the request in a receipt.
    pub(crate) fn read(id: &Id, input: Option<&Bytes>) -> Result<StoredRequest> {
        input.and_then(StoredRequest::decode).ok_or_else(|| {
            let detail = format!("the journal's request of {:?} cannot be read", id.key());
            onceward::Error::new(ErrorKind::Damaged, detail)
        })
    }

    /// How long the server still honours the key of a request.
    pub(crate) fn honoured_for(&self, stored: &StoredRequest) -> Option<Duration> {
        stored.honoured_for(self.clock.now_us())
    }

    /// Stores how long the server honours the key, for a later resumption.
    pub(crate) async fn honoured(&self, lease: &Lease, stored: &StoredRequest, left: Duration) {
        let honoured_until_us = after(self.clock.now_us(), left);
        let Ok(input) = (StoredRequest { honoured_until_us, ..stored.clone() }).encode() else { return };
        if let Err(error) = lease.replace_input(input).await {
            tracing::warn!(%error, "how long the server honours a key could not be stored");
        }
    }

    /// Marks the outcome of the held request as unknown, so that it is not sent again.
    pub(crate) async fn mark_unknown(&self, lease: &Lease) -> Result<()> {
        let ticket = Ticket::new(lease.id().clone(), lease.attempt(), lease.fence(), self.holding.clone());
        match self.onceward.mark_unknown(&ticket).await? {
            Changed::Applied => Ok(()),
            Changed::NotOwner(_) => {
                let detail = "another call has claimed the intent";
                Err(onceward::Error::new(ErrorKind::LeaseLost, detail))
            }
        }
    }

    /// Removes answers that are past their retention, and everything else that the store keeps until a sweep. One call
    /// is bounded; the next one continues.
    pub(crate) async fn sweep(&self) {
        if let Err(error) = self.onceward.sweep(&Sweep::default()).await {
            tracing::warn!(%error, "the journal could not be swept, trying again at the next resumption");
        }
    }

    /// Runs the rest of a call in a task of its own: its caller has the answer, which is still being recorded.
    pub(crate) fn record_in_background(self: &Arc<Self>, rest: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let recording = PendingRecord::begin(self.clone());
        tokio::spawn(async move {
            rest.await;
            drop(recording);
        });
    }

    /// Waits until no answer is being recorded any more.
    pub(crate) async fn recorded(&self) {
        // It cannot fail: `self` owns the sender.
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

fn after(now_us: u64, left: Duration) -> u64 {
    now_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
}

/// Counts one answer as being recorded until it is dropped.
struct PendingRecord(Arc<Journal>);

impl PendingRecord {
    fn begin(journal: Arc<Journal>) -> Self {
        journal.recording.send_modify(|recording| *recording += 1);
        Self(journal)
    }
}

impl Drop for PendingRecord {
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
