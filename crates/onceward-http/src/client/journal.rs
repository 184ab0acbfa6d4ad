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
//! forgotten becomes unknown, and stays so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use onceward::receipt::{Claim, Done, Status};
use onceward::{
    Applied, Ask, Attempt, Clock, Fence, Fingerprint, Found, Id, Limits, OnDuplicate, OnFailure, OnUnknown,
    Onceward, Outcome, Policy, Record, Refusal, Result, Retention, Seen, State, Stopped, Store, Swap,
    Swapped, Version, WAIT_MAX, codec,
};

use super::client::Opening;
use super::prepared::Prepared;
use super::stored::Stored;
use crate::snapshot::{self, Omitted};

/// What every intent's operation is. The name of an intent is unique in a journal, wherever it goes:
/// were the URL part of its id, a corrected URL would make a second intent of it.
const OPERATION: &str = "send";
const REQUEST: &str = "request";
/// The operation under which the requests lie.
pub(crate) const REQUESTS: &str = "send#request";

/// This many requests that are done with are taken away together. Until then each costs a little disk
/// and nothing else: resuming finds it done.
const TAKE_AWAY: usize = 64;

/// Room for the status and the fields beside an answer's body.
const FIELDS_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) onceward: Onceward,
    store: Shelf,
    pub(crate) name: String,
    clock: Ticking,
    sending: Arc<Policy>,
    resuming: Arc<Policy>,
    doubting: Arc<Policy>,
    keep: Retention,
    finished: Mutex<Vec<(Id, Version)>>,
}

struct Shelf(Arc<dyn Store>);
struct Ticking(Arc<dyn Clock>);

/// A request that is down in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The id of its receipt.
    id: Id,
    version: Version,
    claim: Claim,
    pub(crate) stored: Stored,
}

/// What became of putting a request down.
pub(crate) enum Put {
    /// It is there now, for the first time.
    New(Open),
    /// One was there: a call that gave up or died had left it. That one is sent.
    Found(Open),
    /// Another request was there.
    Other,
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
        Ok(Arc::new(Self {
            onceward: Onceward::builder(store.clone()).limits(limits).build()?,
            store: Shelf(store),
            name: opening.name.clone(),
            clock: Ticking(opening.clock.clone()),
            sending: Arc::new(policy.clone().on_duplicate(wait)?),
            resuming: Arc::new(policy.clone().on_duplicate(OnDuplicate::Conflict)?),
            doubting: Arc::new(policy.on_duplicate(OnDuplicate::Conflict)?.on_unknown(OnUnknown::Hold)),
            keep: opening.keep,
            finished: Mutex::default(),
        }))
    }

    pub(crate) fn id(&self, intent: &str) -> Result<Id> {
        Id::new(&self.name, OPERATION, intent)
    }

    /// The ask of a caller, who waits for whoever sends it already.
    pub(crate) fn ask_to_send(&self, id: &Id, fingerprint: Fingerprint) -> Ask {
        Ask::new(id.clone(), fingerprint, self.sending.clone())
    }

    /// The ask of a resumption, which leaves alone what somebody is sending.
    pub(crate) fn ask_to_resume(&self, id: &Id, fingerprint: Fingerprint) -> Ask {
        Ask::new(id.clone(), fingerprint, self.resuming.clone())
    }

    /// Puts a request down, under the claim of whoever is about to send it.
    pub(crate) async fn put(
        &self,
        id: &Id,
        claim: Claim,
        request: &Prepared,
        honoured_for: Duration,
    ) -> Result<Put, super::Error> {
        let put_us = self.now_us();
        let honoured_for_us = u64::try_from(honoured_for.as_micros()).unwrap_or(u64::MAX);
        let honoured_until_us = put_us.saturating_add(honoured_for_us);
        let stored = Stored { put_us, honoured_until_us, request: request.clone() };
        let new = record(claim, stored.encode()?);
        let put = self.put_record(id, claim, stored, new).await;
        put.map_err(super::Error::journal)
    }

    async fn put_record(&self, id: &Id, claim: Claim, stored: Stored, new: Record) -> Result<Put> {
        let id = id.step(REQUEST)?;
        let swap = Swap { id: id.clone(), seen: Seen::Absent, new: Some(new) };
        let found = match self.swap(swap).await {
            Ok(Swapped::Won(version)) => return Ok(Put::New(Open { id, version, claim, stored })),
            Ok(Swapped::Lost(found)) => found,
            Err(error) if error.applied() == Applied::Maybe => self.load(&id).await.map_err(|_| error)?,
            Err(error) => return Err(error),
        };
        let Some(found) = found else {
            let detail = "the request was taken away while it was put down; send it again";
            return Err(onceward::Error::new(onceward::ErrorKind::Conflict, detail));
        };
        let open = decode(id, &found)?;
        Ok(match open.claim {
            own if own.attempt == claim.attempt => Put::New(open),
            other if other.fingerprint == claim.fingerprint => Put::Found(open),
            _ => Put::Other,
        })
    }

    /// The request of an intent as it lies in the journal.
    pub(crate) async fn request(&self, id: &Id) -> Result<Option<Open>> {
        let id = id.step(REQUEST)?;
        let found = self.load(&id).await?;
        found.map(|found| decode(id, &found)).transpose()
    }

    /// Writes down that the server has said how long it honours the key, so that a resumption knows.
    pub(crate) async fn honoured(&self, open: &mut Open, left: Duration) -> Result<()> {
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        open.stored.honoured_until_us = self.now_us().saturating_add(left_us);
        let Ok(bytes) = open.stored.encode() else { return Ok(()) };
        let new = Some(record(open.claim, bytes));
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
        let place = (open.id, open.version);
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

    async fn take_away(&self, mut batch: Vec<(Id, Version)>) {
        batch.sort();
        batch.dedup_by(|one, next| one.0 == next.0);
        let swaps: Vec<Swap> = batch
            .into_iter()
            .map(|(id, version)| Swap { id, seen: Seen::Version(version), new: None })
            .collect();
        if let Err(error) = self.store.0.swap(&swaps).await {
            tracing::warn!(%error, "finished requests stay in the journal until the next resumption");
        }
    }

    /// Writes down that nobody can tell what became of an intent, so that nobody sends it again.
    pub(crate) async fn doubt(&self, id: &Id, fingerprint: Fingerprint) -> Result<()> {
        let ask = Ask::new(id.clone(), fingerprint, self.doubting.clone());
        let unknown = async |_| Err(Stopped::unknown("the server may have forgotten the key"));
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
        self.clock.0.now_us()
    }

    async fn swap(&self, swap: Swap) -> Result<Swapped> {
        let swapped = self.store.0.swap(std::slice::from_ref(&swap)).await?.pop();
        swapped.ok_or_else(|| onceward::Error::new(onceward::ErrorKind::Damaged, "the store gave no answer"))
    }

    async fn load(&self, id: &Id) -> Result<Option<Found>> {
        Ok(self.store.0.load(std::slice::from_ref(id)).await?.pop().flatten())
    }
}

/// What a receipt under [`REQUESTS`] says.
pub(crate) fn decode(id: Id, found: &Found) -> Result<Open> {
    let receipt = codec::decode(found)?;
    if let Status::Done(done) = receipt.status
        && let Some(stored) = Stored::decode(done.outcome.body())
    {
        return Ok(Open { id, version: receipt.version, claim: done.claim, stored });
    }
    let detail = format!("the journal's request of {:?} cannot be read", id.key());
    Err(onceward::Error::new(onceward::ErrorKind::Damaged, detail))
}

impl Open {
    /// What was asked.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.claim.fingerprint
    }
}

/// The claim under which a request is put down. Its fence is the record's own version.
pub(crate) fn claim(fingerprint: Fingerprint, attempt: Attempt) -> Claim {
    Claim { fingerprint, attempt, fence: Fence(0) }
}

/// A record that never falls due: an open request is not forgotten.
fn record(claim: Claim, bytes: Bytes) -> Record {
    let done = Done { claim, outcome: Outcome::succeeded(bytes), tombstone: None };
    Record { state: State::Done, due_in: None, bytes: codec::encode(&Status::Done(done)) }
}

/// An answer as its intent's outcome.
pub(crate) fn outcome(response: &Response<Bytes>) -> Outcome {
    let bytes = snapshot::encode(response.status(), response.headers(), response.body(), &Omitted::default());
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        Outcome::failed(bytes)
    } else {
        Outcome::succeeded(bytes)
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.caps().name)
    }
}

impl std::fmt::Debug for Ticking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
