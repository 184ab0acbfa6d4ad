//! Lists the intents of a journal, for people and tools.

use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use onceward::receipt::{End, Receipt, Status};
use onceward::{Filter, Id, ReceiptPage, Scan, ScanTarget, Snapshot, State, TextMatch};

use super::client::Client;
use super::error::{Error, Result};
use super::journal::{Journal, OPERATION};
use super::stored_request::StoredRequest;
use onceward_http::snapshot;

/// One intent of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intent {
    /// Its name.
    pub name: String,
    /// Its result.
    pub state: IntentState,
    /// How long ago it was first written to the journal.
    pub created_ago: Duration,
    /// How long ago it last changed.
    pub changed_ago: Duration,
    /// Its request; `None` once it is done.
    pub request: Option<IntentRequest>,
    /// Why the last call had no answer; empty if that is not known.
    pub note: String,
}

/// The request of an intent, without its body and header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntentRequest {
    /// Its method.
    pub method: Method,
    /// Its URL without the query, which may contain secrets.
    pub url: String,
    /// Its idempotency key.
    pub key: String,
    /// The names of the credentials that it was sent with.
    pub credentials: Vec<HeaderName>,
}

/// The state of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IntentState {
    /// A call is sending it, or its process died less than a lease ago.
    Sending,
    /// It has no answer yet: the next call with its name, or a resumption, sends it.
    Open,
    /// It may or may not have taken effect, and is not sent until it is settled.
    Unknown,
    /// It was answered; with the status, if that was kept.
    Answered(Option<StatusCode>),
    /// It was closed, and is not sent.
    Closed,
    /// The journal has a receipt that cannot be read; the note says why.
    Unreadable,
}

impl std::fmt::Display for IntentState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sending => f.write_str("sending"),
            Self::Open => f.write_str("open"),
            Self::Unknown => f.write_str("unknown"),
            Self::Answered(Some(status)) => write!(f, "answered {}", status.as_u16()),
            Self::Answered(None) => f.write_str("answered"),
            Self::Closed => f.write_str("closed"),
            Self::Unreadable => f.write_str("unreadable"),
        }
    }
}

/// Which intents are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListWhich {
    /// Those without an answer: being sent, open or unknown.
    #[default]
    Unfinished,
    /// All of them.
    All,
}

const PAGE_RECORDS: usize = 256;
/// The states of an intent without an answer.
const UNFINISHED: [State; 4] = [State::Held, State::Waiting, State::Unknown, State::Dead];

impl Client {
    /// Lists the intents of the journal and sends nothing. `tell` gets them one by one, so that a large journal need
    /// not fit into memory. An intent that changes meanwhile may be told twice, in two states.
    pub async fn list(&self, which: ListWhich, mut tell: impl FnMut(Intent)) -> Result<()> {
        let journal = self.journal().await?;
        let states: &[State] = match which {
            ListWhich::Unfinished => &UNFINISHED,
            ListWhich::All => &[State::Held, State::Waiting, State::Unknown, State::Dead, State::Done],
        };
        for state in states {
            let mut after = None;
            loop {
                let filter = Filter::default()
                    .with_scope(journal.name.clone())
                    .with_operation(TextMatch::Is(OPERATION.to_owned()))
                    .with_state(*state);
                let scan = Scan::new(ScanTarget::Matching(filter), PAGE_RECORDS).with_after(after);
                let ReceiptPage { found, unreadable, next, .. } =
                    journal.onceward.list(&scan).await.map_err(Error::journal)?;
                for (id, _) in found {
                    match journal.onceward.receipt(&id).await {
                        Ok(Some(receipt)) => tell(intent(journal, &id, &receipt)),
                        // It was removed meanwhile.
                        Ok(None) => {}
                        Err(error) => tell(unreadable_intent(&id, error.to_string())),
                    }
                }
                for (id, unreadable) in unreadable {
                    tell(unreadable_intent(&id, unreadable.error.to_string()));
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn intent(journal: &Journal, id: &Id, receipt: &Receipt) -> Intent {
    let job = receipt.status.job();
    let stored = job.and_then(|job| StoredRequest::decode(&job.input));
    let expired = stored.as_ref().is_some_and(|stored| journal.honoured_for(stored).is_none());
    let state = match &receipt.status {
        Status::Held(_) if !receipt.due.is_over() => IntentState::Sending,
        // What the next call would find: the key is too old for another try.
        Status::Held(_) | Status::Waiting(_) | Status::Dead(_) if expired => IntentState::Unknown,
        Status::Held(_) | Status::Waiting(_) | Status::Dead(_) => IntentState::Open,
        Status::Unknown(_) => IntentState::Unknown,
        Status::Done(done) => match &done.end {
            End::Outcome(outcome) => IntentState::Answered(status_of(outcome.snapshot())),
            End::Closed(_) => IntentState::Closed,
        },
        Status::Gone(_) => IntentState::Closed,
    };
    Intent {
        name: id.key().to_owned(),
        state,
        created_ago: receipt.age.created,
        changed_ago: receipt.age.updated,
        request: stored.as_ref().map(request),
        note: job.map(|job| job.note.clone()).unwrap_or_default(),
    }
}

fn request(stored: &StoredRequest) -> IntentRequest {
    let mut url = stored.request.url.clone();
    url.set_query(None);
    IntentRequest {
        method: stored.request.method.clone(),
        url: url.into(),
        key: stored.request.key.as_ref().map(|key| key.text().into_owned()).unwrap_or_default(),
        credentials: stored.credentials.clone(),
    }
}

fn status_of(kept: &Snapshot) -> Option<StatusCode> {
    match kept {
        Snapshot::Kept(bytes) => snapshot::decode(bytes).map(|response| response.status()),
        Snapshot::Omitted(note) => StatusCode::from_bytes(note).ok(),
    }
}

fn unreadable_intent(id: &Id, note: String) -> Intent {
    Intent {
        name: id.key().to_owned(),
        state: IntentState::Unreadable,
        created_ago: Duration::ZERO,
        changed_ago: Duration::ZERO,
        request: None,
        note,
    }
}
