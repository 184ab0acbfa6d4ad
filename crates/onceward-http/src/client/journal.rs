//! The journal: two receipts per intent, in any durable store.
//!
//! ```text
//!  (name, "send#request", intent)   the request and its key, put down before the first byte leaves,
//!                                   taken away when the answer is recorded
//!  (name, "send", intent)           held while somebody sends it, then done with the answer, or unknown
//! ```
//!
//! The first says what is open, so resuming reads nothing else. The second decides: who may send, and
//! whether anybody still may. What a crash leaves, in the order in which a call comes by:
//!
//! | when | what is there | what happens next |
//! |---|---|---|
//! | before the claim | nothing | nothing was sent, nobody was promised anything |
//! | claimed | held | the same; the lease ends by itself |
//! | put down | held, request | resumed: sent with this key for the first time |
//! | sent | held, request | resumed: the same bytes under the same key; the server runs it or replays |
//! | answered | held, request | the same; the server replays |
//! | recorded | done, request | resumed: the recorded answer, and the request is taken away |
//! | taken away | done | nothing is open; the intent's name gives the recorded answer |
//!
//! A call that gave up leaves the request alone, without a claim. One whose key the server may have
//! forgotten becomes unknown, and stays so until somebody settles it.
//!
//! **What a call waits for.** Before the first byte, for one sync: claim and request travel together
//! (`riding.rs`). Behind the last byte, for nothing: the caller gets the answer while it is being
//! recorded. Until that is done the request lies in the journal, so a crash leaves the row "answered":
//! it is asked for again under the same key, and what the server no longer honours is unknown, never
//! sent. So nothing is forgotten and nothing is done twice; what is lost is the certainty that an
//! answer which was read needs no second asking, and [`Journal::recorded`] is how to wait for that.
//! Answers do not pile up unrecorded: the next claim queues behind them in the same store.
//!
//! Where answers are kept for a time only, a call waits for all of it: a name that is free again must
//! not find the request of its former life.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use onceward::receipt::Claim;
use onceward::{
    Applied, Ask, Clock, Fingerprint, Found, Id, Limits, OnDuplicate, OnFailure, OnUnknown, Onceward,
    Outcome, Policy, Refusal, Result, Retention, Seen, Stopped, Store, Swap, Swapped, Version, WAIT_MAX,
};
use tokio::sync::watch;

use super::client::Opening;
use super::open::{self, Open, Put, Putting};
use super::prepared::Prepared;
use super::riding::{Arrived, Name, Riding, Rode};
use super::stored::Stored;
use crate::snapshot::{self, Omitted};

/// What every intent's operation is. The name of an intent is unique in a journal, wherever it goes:
/// were the URL part of its id, a corrected URL would make a second intent of it.
const OPERATION: &str = "send";
/// The operation under which the requests lie.
pub(crate) const REQUESTS: &str = "send#request";

/// This many requests that are done with are taken away together. Until then each costs a little disk
/// and nothing else: resuming finds it done.
const TAKE_AWAY: usize = 64;

/// Room for the status and the fields beside an answer's body.
const FIELDS_BYTES_MAX: usize = 256 << 10;

pub(crate) struct Journal {
    pub(crate) onceward: Onceward,
    store: Arc<dyn Store>,
    riding: Arc<Riding>,
    pub(crate) name: String,
    clock: Arc<dyn Clock>,
    pub(crate) sending: Arc<Policy>,
    resuming: Arc<Policy>,
    doubting: Arc<Policy>,
    keep: Retention,
    omitted: Omitted,
    finished: Mutex<Vec<(Id, Version)>>,
    /// How many answers were handed out and are being recorded.
    recording: watch::Sender<usize>,
}

impl Journal {
    pub(crate) async fn open(opening: &Opening) -> Result<Arc<Self>> {
        let store = (opening.open)().await?;
        let limits = Limits {
            body_bytes_max: opening.answer_bytes_max.saturating_add(FIELDS_BYTES_MAX),
            ..Limits::default()
        };
        // The key makes it harmless to send again what a dead process may have sent.
        let policy =
            Policy::http().on_unknown(OnUnknown::Retry).on_failure(OnFailure::Replay).keep(opening.keep)?;
        let wait = OnDuplicate::Wait(WAIT_MAX);
        Id::new(&opening.name, OPERATION, "name")?;
        let riding = Riding::new(store.clone());
        Ok(Arc::new(Self {
            onceward: Onceward::builder(riding.clone()).limits(limits).build()?,
            store,
            riding,
            name: opening.name.clone(),
            clock: opening.clock.clone(),
            sending: Arc::new(policy.clone().on_duplicate(wait)?),
            resuming: Arc::new(policy.clone().on_duplicate(OnDuplicate::Conflict)?),
            doubting: Arc::new(policy.on_duplicate(OnDuplicate::Conflict)?.on_unknown(OnUnknown::Hold)),
            keep: opening.keep,
            omitted: Omitted::default(),
            finished: Mutex::default(),
            recording: watch::Sender::new(0),
        }))
    }

    pub(crate) fn id(&self, intent: &str) -> Result<Id> {
        Id::new(&self.name, OPERATION, intent)
    }

    /// Where the request of an intent lies.
    fn request_id(&self, id: &Id) -> Result<Id> {
        Id::from_columns(&self.name, REQUESTS, id.key())
    }

    /// The ask of a caller, who waits for whoever sends it already.
    pub(crate) fn ask_to_send(&self, id: &Id, fingerprint: Fingerprint) -> Ask {
        Ask::new(id.clone(), fingerprint, self.sending.clone())
    }

    /// The ask of a resumption, which leaves alone what somebody is sending.
    pub(crate) fn ask_to_resume(&self, id: &Id, fingerprint: Fingerprint) -> Ask {
        Ask::new(id.clone(), fingerprint, self.resuming.clone())
    }

    /// Makes a request ready to be put down under the claim of whoever is about to send it, and lets
    /// it ride with that claim where it can.
    pub(crate) fn prepare(
        &self,
        id: &Id,
        claim: Claim,
        request: Box<Prepared>,
        name: Name,
        honoured_for: Duration,
    ) -> Result<Putting, super::Error> {
        let put_us = self.now_us();
        let honoured_for_us = u64::try_from(honoured_for.as_micros()).unwrap_or(u64::MAX);
        let honoured_until_us = put_us.saturating_add(honoured_for_us);
        let stored = Stored { put_us, honoured_until_us, request: request.into() };
        let request_id = self.request_id(id).map_err(super::Error::journal)?;
        let swap = open::swap(request_id, claim, stored.encode()?);
        let seat = self.riding.seat(id, swap.clone(), &claim, name);
        Ok(Putting { swap, claim, stored, seat, lies: None })
    }

    /// Puts a request down, unless it is there already.
    pub(crate) async fn put(&self, putting: &mut Putting) -> Result<Put> {
        let swapped = match putting.seat.arrived() {
            Some(Arrived { swapped: Ok(swapped), claim: Rode::Won }) => Ok(swapped),
            // Whatever became of it: if it is there, it is found.
            _ => self.swap(putting.swap.clone()).await,
        };
        match swapped {
            Ok(swapped) => putting.swapped(swapped),
            Err(error) if error.applied() == Applied::Maybe => {
                let found = self.load(&putting.swap.id).await.map_err(|_| error)?;
                putting.found(found.as_ref())
            }
            Err(error) => Err(error),
        }
    }

    /// The request of an intent as it lies in the journal.
    pub(crate) async fn request(&self, id: &Id) -> Result<Option<Open>> {
        let id = self.request_id(id)?;
        let found = self.load(&id).await?;
        found.map(|found| Open::decode(id, &found)).transpose()
    }

    /// Writes down that the server has said how long it honours the key, so that a resumption knows.
    pub(crate) async fn honoured(&self, open: &mut Open, left: Duration) -> Result<()> {
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        open.stored.honoured_until_us = self.now_us().saturating_add(left_us);
        let Ok(bytes) = open.stored.encode() else { return Ok(()) };
        let new = Some(open::record(open.claim, bytes));
        let swap = Swap { id: open.id.clone(), seen: Seen::Version(open.version), new };
        if let Swapped::Won(version) = self.swap(swap).await? {
            open.version = version;
        }
        Ok(())
    }

    /// How long the server still honours the key of this request.
    pub(crate) fn honoured_for(&self, open: &Open) -> Option<Duration> {
        open.stored.honoured_for(self.now_us())
    }

    /// The request's answer is recorded: it can go. Taken away in a batch, by a task of its own; one
    /// that is lost with the process is found done by the next resumption.
    ///
    /// Where answers are not kept for ever, it goes at once: a name that is free again must not find
    /// the request of its former life.
    pub(crate) async fn finished(self: &Arc<Self>, open: Open) {
        self.done_with((open.id, open.version)).await;
    }

    pub(crate) async fn done_with(self: &Arc<Self>, place: (Id, Version)) {
        if self.keep != Retention::Forever {
            return self.take_away(vec![place]).await;
        }
        let batch = {
            let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
            finished.push(place);
            if finished.len() < TAKE_AWAY {
                return;
            }
            std::mem::take(&mut *finished)
        };
        let journal = self.clone();
        tokio::spawn(async move { journal.take_away(batch).await });
    }

    /// Takes away what is finished and still waits for others to go with.
    pub(crate) async fn tidy(&self) {
        let batch = std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner));
        if !batch.is_empty() {
            self.take_away(batch).await;
        }
    }

    pub(crate) async fn take_away(&self, mut batch: Vec<(Id, Version)>) {
        batch.sort();
        batch.dedup_by(|one, next| one.0 == next.0);
        let swaps: Vec<Swap> = batch
            .into_iter()
            .map(|(id, version)| Swap { id, seen: Seen::Version(version), new: None })
            .collect();
        if let Err(error) = self.store.swap(&swaps).await {
            tracing::warn!(%error, "finished requests stay in the journal until the next resumption");
        }
    }

    /// Whether an answer may be handed out while it is being recorded.
    pub(crate) fn records_beside(&self) -> bool {
        self.keep == Retention::Forever
    }

    /// Lets the rest of a call go on beside its caller, who has the answer: it is being recorded.
    pub(crate) fn record_beside(self: &Arc<Self>, rest: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let recording = Recording::begin(self.clone());
        tokio::spawn(async move {
            rest.await;
            drop(recording);
        });
    }

    /// Waits until no answer is being recorded any more, and takes away what is finished.
    pub(crate) async fn recorded(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.recording.subscribe().wait_for(|recording| *recording == 0).await;
        self.tidy().await;
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

    /// Writes down that nobody can tell what became of this request, so that nobody sends it again. Where
    /// another life of the intent has begun meanwhile, there is no doubt about that one.
    pub(crate) async fn doubt(&self, id: &Id, open: &Open) -> Result<()> {
        let ask = Ask::new(id.clone(), open.fingerprint(), self.doubting.clone());
        let unknown = async |_| match self.request(id).await {
            Ok(Some(now)) if now.request().key == open.request().key => {
                Err(Stopped::unknown("the server may have forgotten the key"))
            }
            Ok(_) => Err(Stopped::before_effect("the request is not there any more")),
            Err(error) => Err(Stopped::before_effect(error.to_string())),
        };
        match self.onceward.run(ask, unknown).await {
            Err(error) if error.kind() != onceward::ErrorKind::Stopped => Err(error),
            Ok(onceward::Answer::Refused(Refusal::InProgress { .. })) => {
                let detail = "somebody is sending it at the moment";
                Err(onceward::Error::new(onceward::ErrorKind::Conflict, detail))
            }
            _ => Ok(()),
        }
    }

    fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    pub(crate) async fn swap(&self, swap: Swap) -> Result<Swapped> {
        let swapped = self.store.swap(std::slice::from_ref(&swap)).await?.pop();
        swapped.ok_or_else(|| onceward::Error::new(onceward::ErrorKind::Damaged, "the store gave no answer"))
    }

    pub(crate) async fn load(&self, id: &Id) -> Result<Option<Found>> {
        Ok(self.store.load(std::slice::from_ref(id)).await?.pop().flatten())
    }
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
