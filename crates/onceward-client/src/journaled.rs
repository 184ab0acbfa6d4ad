//! Sends one intent of the journal, from the claim to the recorded answer: for a caller, or for a request that an
//! earlier process left open.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::{Completed, Effect, Fingerprint, Id, Lease, Outcome, Prior, Refusal, Stopped, Verdict};
use tokio::sync::oneshot;

use super::client::{Client, finish, from_journal};
use super::error::{Error, ErrorKind, Result};
use super::exchange::Exchanged;
use super::journal::Journal;
use super::key_status::stays_open;
use super::prepared_request::PreparedRequest;
use super::retry_config::RetryConfig;
use super::retry_decision::Sent;
use super::retry_loop::{CallResult, RetryContext, drive};
use super::retry_state::{RetryState, StopReason};
use super::server_reply::Reply;
use super::stored_request::StoredRequest;
use onceward_http::snapshot;

/// A caller's own request, as it is stored with the claim.
pub(crate) struct CallerRequest {
    fingerprint: Fingerprint,
    stored: StoredRequest,
    input: Bytes,
}

impl CallerRequest {
    /// Whether exactly this request is in the receipt and cannot have been sent yet. The receipt of an open intent
    /// holds the request of the first call.
    fn is_first(&self, lease: &Lease) -> bool {
        lease.tries() == 1 && lease.prior() == Prior::Nothing && lease.input() == Some(&self.input)
    }
}

/// Sends the result of a call to its caller, once.
struct AnswerSender(Option<oneshot::Sender<Result<Reply>>>);

impl AnswerSender {
    fn tell(&mut self, end: Result<Reply>) {
        if let Some(tell) = self.0.take() {
            // The caller may have been dropped.
            let _ = tell.send(end);
        }
    }
}

/// How the sending ended, before it is recorded.
pub(crate) enum SendEnd {
    /// With an answer, which is returned while it is being recorded.
    Answered(Reply),
    /// With a result that is returned after the receipt is written.
    Ended(Result<Reply>),
}

impl SendEnd {
    fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

impl Client {
    /// Sends with a journal. An intent without a name is named by its key. The caller gets the answer as soon
    /// as it has arrived; it is recorded by a task of its own.
    pub(crate) async fn send_journaled(
        &self,
        prepared: Box<PreparedRequest>,
        intent: Option<String>,
        call_at_most: Duration,
    ) -> Result<Reply> {
        let journal = self.journal().await?;
        let id = match &intent {
            Some(name) => journal.id(name),
            None => journal.id(&prepared.key.as_ref().expect("only what has a key is journaled").text()),
        };
        let id = id.map_err(bad_name)?;
        let fingerprint = prepared.fingerprint();
        let stored = journal.stored(prepared, self.config().honoured_for, self.inner.credentials.sent());
        let own = CallerRequest { fingerprint, input: stored.encode()?, stored };
        let (tell, mut told) = oneshot::channel();
        let sender = AnswerSender(Some(tell));
        let mut running =
            Box::pin(self.clone().run_journaled(journal.clone(), id, own, call_at_most, sender));
        let mut over = false;
        let hearing = poll_fn(|cx| {
            // The result may be sent and yet be received only at the next poll (the runtime's cooperative budget).
            over = over || running.as_mut().poll(cx).is_ready();
            Pin::new(&mut told).poll(cx)
        });
        // After its deadline a call still waits for the writes to the journal.
        let heard = tokio::time::timeout(call_at_most.saturating_add(WRITING_AT_MOST), hearing).await;
        let Ok(heard) = heard else { return Err(Error::stopped(StopReason::Deadline, Effect::Maybe, None)) };
        if !over {
            journal.record_in_background(running);
        }
        heard.expect("a call sends its result before it ends")
    }

    /// Gets the answer of an intent: sends it, waits if another call is sending it, or reads the recorded answer.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice, and every call carries them along"
    )]
    fn run_journaled(
        self,
        journal: Arc<Journal>,
        id: Id,
        own: CallerRequest,
        call_at_most: Duration,
        mut sender: AnswerSender,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let mut sent = None;
            let ran = loop {
                let ask = journal.ask(&id, own.fingerprint, own.input.clone());
                let ran = journal.onceward.run(ask, |lease| {
                    let (client, journal, own) = (&self, &journal, &own);
                    let (sender, sent) = (&mut sender, &mut sent);
                    async move {
                        let worked = client.work(journal, &lease, Some(own), call_at_most, sent).await;
                        if let Some(SendEnd::Answered(answer)) = sent.take_if(|sent| sent.is_answered()) {
                            sender.tell(Ok(answer));
                        }
                        worked
                    }
                });
                match ran.await {
                    Ok(onceward::Answer::Refused(Refusal::Dead { .. })) => {
                        // It was claimed the maximum number of times without an end. The client's `RetryConfig`
                        // limits the tries, not the receipt.
                        if let Err(error) = journal.onceward.retry_dead(&id).await {
                            break Err(error);
                        }
                    }
                    ran => break ran,
                }
            };
            // Does nothing if the answer was sent already.
            sender.tell(match (ran, sent) {
                (
                    Ok(onceward::Answer::Completed(Completed { replayed: false, .. })),
                    Some(SendEnd::Ended(end)),
                ) => end,
                (Ok(onceward::Answer::Completed(ran)), _) => self.recorded_answer(&ran.outcome),
                (Ok(onceward::Answer::Refused(refusal)), _) => Err(refused(&id, &refusal)),
                (Err(error), Some(SendEnd::Ended(end))) if error.kind() == onceward::ErrorKind::Stopped => {
                    end
                }
                (Err(error), _) if error.kind() == onceward::ErrorKind::Invalid => {
                    Err(Error::invalid("the request does not fit into the journal").caused_by(error))
                }
                (Err(error), _) => Err(Error::journal(error)),
            });
        }
    }

    /// The work under a claim: sends the request that is in the receipt. Returns what is to be recorded.
    pub(crate) async fn work(
        &self,
        journal: &Journal,
        lease: &Lease,
        own: Option<&CallerRequest>,
        call_at_most: Duration,
        sent: &mut Option<SendEnd>,
    ) -> Result<Outcome, Stopped> {
        let shared = &self.inner.shared;
        let now = shared.now();
        let config = RetryConfig { call_at_most, ..shared.config };
        let (stored, state) = match own {
            Some(own) if own.is_first(lease) => {
                shared.counters.journaled.one();
                (own.stored.clone(), RetryState::new(config, own.stored.request.guard(), now))
            }
            _ => {
                let found = match Journal::read(lease.id(), lease.input()) {
                    Ok(found) => found,
                    Err(error) => return Err(stop(sent, Error::journal(error))),
                };
                if own.is_some_and(|own| own.fingerprint != found.request.fingerprint()) {
                    return Err(stop(sent, refused(lease.id(), &Refusal::KeyReused)));
                }
                let ours = &self.inner.exchange.headers;
                if let Some(missing) = found.credentials.iter().find(|name| !ours.contains_key(*name)) {
                    return Err(stop(sent, credentials_missing(lease.id(), missing)));
                }
                shared.counters.resumed.one();
                let Some(left) = journal.honoured_for(&found) else {
                    shared.counters.unknown.one();
                    *sent =
                        Some(SendEnd::Ended(Err(Error::stopped(StopReason::Expired, Effect::Maybe, None))));
                    return Err(expired(journal, lease).await);
                };
                let state = RetryState::new(config, found.request.guard(), now).resumed(now, left);
                (found, state)
            }
        };
        self.exchange(journal, lease, stored, state, sent).await
    }

    fn exchange(
        &self,
        journal: &Journal,
        lease: &Lease,
        stored: StoredRequest,
        state: RetryState,
        sent: &mut Option<SendEnd>,
    ) -> impl Future<Output = Result<Outcome, Stopped>> + Send {
        let (shared, exchange) = (&self.inner.shared, &self.inner.exchange);
        let host = shared.hosts.host(stored.request.authority());
        async move {
            let stored = &stored;
            let trying = |number, at_most| async move {
                let made = exchange.try_once(&stored.request, number, at_most).await;
                // The head of an answer arrived and its body did not: what the head said about the key is
                // stored for later processes.
                if let (Some(left), Err(_)) = (made.honoured_for, &made.value) {
                    Box::pin(journal.honoured(lease, stored, left)).await;
                }
                made
            };
            let result = drive(shared, &host, state, trying).await;
            match to_record(shared, journal, lease, result, sent) {
                ToRecord::Outcome(outcome) => Ok(outcome),
                ToRecord::Open(stopped) => Err(stopped),
                ToRecord::Expired => Err(Box::pin(expired(journal, lease)).await),
            }
        }
    }

    /// Decodes the answer in a recorded outcome.
    fn recorded_answer(&self, outcome: &Outcome) -> Result<Reply> {
        self.inner.shared.counters.replays_from_journal.one();
        snapshot::decode(outcome.body()).map(from_journal).ok_or_else(|| {
            let detail = "the recorded answer cannot be read; was it written by a newer version?";
            Error::new(ErrorKind::Journal, detail).effect_is(Effect::Maybe)
        })
    }
}

/// How long a call may exceed its deadline while its journal writes.
const WRITING_AT_MOST: Duration = Duration::from_secs(30);

/// What is to be recorded after sending.
enum ToRecord {
    Outcome(Outcome),
    /// Nothing: the intent is left open.
    Open(Stopped),
    /// That it is unknown.
    Expired,
}

/// Sets what the caller gets, and returns what is to be recorded.
fn to_record(
    shared: &RetryContext,
    journal: &Journal,
    lease: &Lease,
    result: CallResult<Exchanged>,
    sent: &mut Option<SendEnd>,
) -> ToRecord {
    let was_sent = result.was_sent;
    match finish(shared, result) {
        Ok(answer) if stays_open(answer.status(), answer.headers(), answer.body()) => {
            let note = format!("answered {}", answer.status());
            *sent = Some(SendEnd::Ended(Ok(answer)));
            ToRecord::Open(leave_open(lease, was_sent, note))
        }
        Ok(answer) => {
            let outcome = journal.outcome(answer.as_response());
            *sent = Some(SendEnd::Answered(answer));
            ToRecord::Outcome(outcome)
        }
        Err(failure) => {
            let note = failure.error.to_string();
            *sent = Some(SendEnd::Ended(Err(failure.error)));
            match (failure.done, failure.why) {
                (Some(done), _) => ToRecord::Outcome(done_without_answer(done.status)),
                (None, Some(StopReason::Expired)) => ToRecord::Expired,
                (None, _) => ToRecord::Open(leave_open(lease, was_sent, note)),
            }
        }
    }
}

/// The outcome of a request that is done and whose answer cannot be returned. Its note is the status, if known.
fn done_without_answer(status: Option<http::StatusCode>) -> Outcome {
    let failed = status.is_some_and(|status| status.is_client_error() || status.is_server_error());
    let verdict = if failed { Verdict::Failed } else { Verdict::Succeeded };
    Outcome::omitted(verdict, status.map(|status| status.as_str().to_owned()).unwrap_or_default())
}

/// Leaves the intent waiting, to be sent by the next call with its name or by a resumption. The receipt records
/// whether a try may have had its effect; once it does, further tries need not be counted.
fn leave_open(lease: &Lease, was_sent: Sent, why: String) -> Stopped {
    match (was_sent, lease.prior()) {
        (Sent::Maybe, Prior::Nothing | Prior::Settled) => Stopped::unknown(why),
        (Sent::No, _) | (Sent::Maybe, Prior::Unknown) => Stopped::suspend(Duration::ZERO),
    }
}

/// Marks an intent whose key the server may have forgotten: it is not sent again until it is settled.
async fn expired(journal: &Journal, lease: &Lease) -> Stopped {
    if let Err(error) = journal.mark_unknown(lease).await {
        // The next call finds the key expired too.
        tracing::warn!(id = ?lease.id(), %error, "an unknown outcome could not be recorded");
    }
    Stopped::unknown("the server may have forgotten the key")
}

/// Ends a call before anything was sent.
fn stop(sent: &mut Option<SendEnd>, error: Error) -> Stopped {
    *sent = Some(SendEnd::Ended(Err(error)));
    Stopped::suspend(Duration::ZERO)
}

/// Without a credential that the request was sent with, the server may take it for another caller's and run it again.
fn credentials_missing(id: &Id, name: &http::HeaderName) -> Error {
    let intent = id.key();
    let detail = format!(
        "the intent `{intent}` was sent with {name}, which no journal keeps and this client does not have; nothing \
         was sent, give it again"
    );
    Error::new(ErrorKind::CredentialsMissing, detail).effect_is(Effect::Maybe)
}

pub(crate) fn bad_name(error: onceward::Error) -> Error {
    Error::invalid("the intent's name cannot be used").caused_by(error)
}

pub(crate) fn refused(id: &Id, refusal: &Refusal) -> Error {
    let intent = id.key();
    match refusal {
        Refusal::KeyReused => Error::new(
            ErrorKind::IntentReused,
            format!("the intent `{intent}` was used for another request; nothing was sent, use another name"),
        ),
        Refusal::InProgress { .. } => {
            let detail = format!("the intent `{intent}` is being sent by another caller");
            Error::new(ErrorKind::InProgress, detail).effect_is(Effect::Maybe)
        }
        Refusal::ResponseNotStored { note, .. } => {
            let detail = match http::StatusCode::from_bytes(note) {
                Ok(status) => {
                    format!("the intent `{intent}` was answered with {status}; the answer is not kept")
                }
                Err(_) => format!("the intent `{intent}` is done; its answer is not kept"),
            };
            Error::new(ErrorKind::AnswerNotAvailable, detail).effect_is(Effect::Maybe)
        }
        Refusal::Closed(_) => {
            let detail = format!("the intent `{intent}` was closed, and is not sent");
            Error::new(ErrorKind::Closed, detail).effect_is(Effect::Maybe)
        }
        _ => {
            let detail = format!("the outcome of the intent `{intent}` is unknown, and it is not sent again");
            Error::new(ErrorKind::Unknown, detail).effect_is(Effect::Maybe)
        }
    }
}
