//! One intent of the journal, from the claim to the recorded answer: for a caller, or for a request
//! that an earlier process left.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::{Completed, Effect, Fingerprint, Id, Lease, Outcome, Prior, Refusal, Stopped, Verdict};
use tokio::sync::oneshot;

use super::answer::Answer;
use super::client::{Client, conclude, from_journal, too_large};
use super::course::{Course, Why};
use super::drive::{Driven, Shared, drive};
use super::error::{Error, ErrorKind, Result};
use super::exchange::Exchanged;
use super::journal::Journal;
use super::judge::Departed;
use super::prepared::Prepared;
use super::stored::Stored;
use super::terms::Terms;
use onceward_http::snapshot;

/// A caller's own request, as it is written down with the claim.
pub(crate) struct Own {
    fingerprint: Fingerprint,
    stored: Stored,
    input: Bytes,
}

impl Own {
    /// Whether this very request is in the receipt, and nobody can have sent it: where a call finds an intent
    /// that is open, the receipt carries what the first one has asked.
    fn is_first(&self, lease: &Lease) -> bool {
        lease.tries() == 1 && lease.prior() == Prior::Nothing && lease.input() == Some(&self.input)
    }
}

/// Tells a caller the end of its call, once.
struct Telling(Option<oneshot::Sender<Result<Answer>>>);

impl Telling {
    fn tell(&mut self, end: Result<Answer>) {
        if let Some(tell) = self.0.take() {
            // A caller that went away does not mind.
            let _ = tell.send(end);
        }
    }
}

/// How the sending ended, before anybody knows whether that could be recorded.
pub(crate) enum Sent {
    /// With this answer, to be handed out while it is being recorded.
    Answered(Answer),
    /// With this.
    Ended(Result<Answer>),
}

impl Sent {
    fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_))
    }
}

impl Client {
    /// Sends with a journal. An intent without a name is named by its key. The caller is told the answer
    /// as soon as it is there; what remains to be written is written by a task of its own.
    pub(crate) async fn send_journaled(
        &self,
        prepared: Box<Prepared>,
        intent: Option<String>,
        call_at_most: Duration,
    ) -> Result<Answer> {
        let journal = self.journal().await?;
        let id = match &intent {
            Some(name) => journal.id(name),
            None => journal.id(&prepared.key.as_ref().expect("only what has a key is journaled").text()),
        };
        let id = id.map_err(bad_name)?;
        let fingerprint = prepared.fingerprint();
        let stored = journal.stored(prepared, self.terms().honoured_for);
        let own = Own { fingerprint, input: stored.encode()?, stored };
        let (tell, mut told) = oneshot::channel();
        let telling = Telling(Some(tell));
        let mut running =
            Box::pin(self.clone().run_journaled(journal.clone(), id, own, call_at_most, telling));
        let mut over = false;
        let hearing = poll_fn(|cx| {
            // Its end may be there and yet be told only at the next poll: the runtime has its say.
            over = over || running.as_mut().poll(cx).is_ready();
            Pin::new(&mut told).poll(cx)
        });
        // Beyond its own time a call still waits for what is being written.
        let heard = tokio::time::timeout(call_at_most.saturating_add(WRITING_AT_MOST), hearing).await;
        let Ok(heard) = heard else { return Err(Error::stopped(Why::Deadline, Effect::Maybe, None)) };
        if !over {
            journal.record_beside(running);
        }
        heard.expect("a call is told its end before it is over")
    }

    /// Gets an intent to its answer: sends it, waits if somebody else does, or reads what is recorded.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice, and every call carries them along"
    )]
    fn run_journaled(
        self,
        journal: Arc<Journal>,
        id: Id,
        own: Own,
        call_at_most: Duration,
        mut telling: Telling,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let mut sent = None;
            let ran = loop {
                let ask = journal.ask(&id, own.fingerprint, own.input.clone());
                let ran = journal.onceward.run(ask, |lease| {
                    let (client, journal, own) = (&self, &journal, &own);
                    let (telling, sent) = (&mut telling, &mut sent);
                    async move {
                        let worked = client.work(journal, &lease, Some(own), call_at_most, sent).await;
                        if let Some(Sent::Answered(answer)) = sent.take_if(|sent| sent.is_answered()) {
                            telling.tell(Ok(answer));
                        }
                        worked
                    }
                });
                match ran.await {
                    Ok(onceward::Answer::Refused(Refusal::Dead { .. })) => {
                        // It took its process with it as often as a receipt counts. That is no reason to
                        // forget it: the terms of the client say how often a request is sent.
                        if let Err(error) = journal.onceward.retry_dead(&id).await {
                            break Err(error);
                        }
                    }
                    ran => break ran,
                }
            };
            // Who was told the answer is told nothing more.
            telling.tell(match (ran, sent) {
                (
                    Ok(onceward::Answer::Completed(Completed { replayed: false, .. })),
                    Some(Sent::Ended(end)),
                ) => end,
                (Ok(onceward::Answer::Completed(ran)), _) => self.recorded_answer(&ran.outcome),
                (Ok(onceward::Answer::Refused(refusal)), _) => Err(refused(&id, &refusal)),
                (Err(error), Some(Sent::Ended(end))) if error.kind() == onceward::ErrorKind::Stopped => end,
                (Err(error), _) if error.kind() == onceward::ErrorKind::Invalid => {
                    Err(Error::invalid("the request does not fit into the journal").caused_by(error))
                }
                (Err(error), _) => Err(Error::journal(error)),
            });
        }
    }

    /// The work under a claim: sends the request that the receipt carries, and says what is to be recorded.
    pub(crate) async fn work(
        &self,
        journal: &Journal,
        lease: &Lease,
        own: Option<&Own>,
        call_at_most: Duration,
        sent: &mut Option<Sent>,
    ) -> Result<Outcome, Stopped> {
        let shared = &self.inner.shared;
        let now = shared.now();
        let terms = Terms { call_at_most, ..shared.terms };
        let (stored, course) = match own {
            Some(own) if own.is_first(lease) => {
                shared.counters.journaled.one();
                (own.stored.clone(), Course::new(terms, own.stored.request.guard(), now))
            }
            _ => {
                let found = match Journal::read(lease.id(), lease.input()) {
                    Ok(found) => found,
                    Err(error) => return Err(stop(sent, Error::journal(error))),
                };
                if own.is_some_and(|own| own.fingerprint != found.request.fingerprint()) {
                    return Err(stop(sent, refused(lease.id(), &Refusal::KeyReused)));
                }
                shared.counters.resumed.one();
                let Some(left) = journal.honoured_for(&found) else {
                    shared.counters.unknown.one();
                    *sent = Some(Sent::Ended(Err(Error::stopped(Why::Expired, Effect::Maybe, None))));
                    return Err(expired(journal, lease).await);
                };
                let course = Course::new(terms, found.request.guard(), now).resumed(now, left);
                (found, course)
            }
        };
        self.exchange(journal, lease, stored, course, sent).await
    }

    fn exchange(
        &self,
        journal: &Journal,
        lease: &Lease,
        stored: Stored,
        course: Course,
        sent: &mut Option<Sent>,
    ) -> impl Future<Output = Result<Outcome, Stopped>> + Send {
        let (shared, exchange) = (&self.inner.shared, &self.inner.exchange);
        let host = shared.hosts.host(stored.request.authority());
        async move {
            let stored = &stored;
            let trying = |number, at_most| async move {
                let made = exchange.try_once(&stored.request, number, at_most).await;
                // The head of an answer came through and its end did not: what the head said about the
                // key must outlive this process.
                if let (Some(left), Err(_)) = (made.honoured_for, &made.value) {
                    Box::pin(journal.honoured(lease, stored, left)).await;
                }
                made
            };
            let driven = drive(shared, &host, course, trying).await;
            match recording(shared, journal, lease, driven, sent) {
                Recording::Outcome(outcome) => Ok(outcome),
                Recording::Open(stopped) => Err(stopped),
                Recording::Expired => Err(Box::pin(expired(journal, lease)).await),
            }
        }
    }

    /// The answer that an outcome holds.
    fn recorded_answer(&self, outcome: &Outcome) -> Result<Answer> {
        self.inner.shared.counters.replays_from_journal.one();
        snapshot::decode(outcome.body()).map(from_journal).ok_or_else(|| {
            let detail = "the recorded answer cannot be read; was it written by a newer version?";
            Error::new(ErrorKind::Journal, detail).effect_is(Effect::Maybe)
        })
    }
}

/// How long a call may outlast its own time while its journal writes.
const WRITING_AT_MOST: Duration = Duration::from_secs(30);

/// What is to be recorded of a sending.
enum Recording {
    Outcome(Outcome),
    /// Nothing: the intent is left open.
    Open(Stopped),
    /// That it is unknown.
    Expired,
}

/// Says what the caller gets, and what is to be recorded.
fn recording(
    shared: &Shared,
    journal: &Journal,
    lease: &Lease,
    driven: Driven<Exchanged>,
    sent: &mut Option<Sent>,
) -> Recording {
    let departed = driven.departed;
    match conclude(shared, driven) {
        Ok(answer) if stays_open(answer.status()) => {
            *sent = Some(Sent::Ended(Ok(answer)));
            Recording::Open(leave_open(lease, departed, "the credentials were not accepted"))
        }
        Ok(answer) => {
            let outcome = journal.outcome(answer.as_response());
            *sent = Some(Sent::Answered(answer));
            Recording::Outcome(outcome)
        }
        Err(no_end) => {
            *sent = Some(Sent::Ended(Err(no_end.error)));
            match (no_end.too_large, no_end.why) {
                (Some(status), _) => {
                    Recording::Outcome(Outcome::omitted(Verdict::Succeeded, status.as_str().to_owned()))
                }
                (None, Some(Why::Expired)) => Recording::Expired,
                (None, _) => {
                    Recording::Open(leave_open(lease, departed, "the call was stopped before its end"))
                }
            }
        }
    }
}

/// An answer that says nothing about the intent, only about the credentials: the intent stays open, to
/// be sent again with better ones.
fn stays_open(status: http::StatusCode) -> bool {
    matches!(status, http::StatusCode::UNAUTHORIZED | http::StatusCode::PROXY_AUTHENTICATION_REQUIRED)
}

/// The intent waits to be sent again, by the next call of its name or by a resumption. The receipt says whether
/// a try may have had its effect; once it says so, further tries need not be counted.
fn leave_open(lease: &Lease, departed: Departed, why: &'static str) -> Stopped {
    match (departed, lease.prior()) {
        (Departed::Maybe, Prior::Nothing | Prior::Settled) => Stopped::unknown(why),
        (Departed::No, _) | (Departed::Maybe, Prior::Unknown) => Stopped::suspend(Duration::ZERO),
    }
}

/// The server may have forgotten the key: nobody sends it again until somebody has looked.
async fn expired(journal: &Journal, lease: &Lease) -> Stopped {
    if let Err(error) = journal.doubt(lease).await {
        // The next one to look finds it just as expired.
        tracing::warn!(id = ?lease.id(), %error, "an unknown outcome could not be written down");
    }
    Stopped::unknown("the server may have forgotten the key")
}

/// Nothing was sent.
fn stop(sent: &mut Option<Sent>, error: Error) -> Stopped {
    *sent = Some(Sent::Ended(Err(error)));
    Stopped::suspend(Duration::ZERO)
}

pub(crate) fn bad_name(error: onceward::Error) -> Error {
    Error::invalid("the intent's name cannot be used").caused_by(error)
}

pub(crate) fn refused(id: &Id, refusal: &Refusal) -> Error {
    let intent = id.key();
    match refusal {
        Refusal::KeyReused => Error::new(
            ErrorKind::IntentReused,
            format!("the intent `{intent}` was another request; nothing was sent, use another name"),
        ),
        Refusal::InProgress { .. } => {
            let detail = format!("the intent `{intent}` is being sent by somebody else at the moment");
            Error::new(ErrorKind::InProgress, detail).effect_is(Effect::Maybe)
        }
        Refusal::ResponseNotStored { note, .. } => {
            let status = http::StatusCode::from_bytes(note).unwrap_or(http::StatusCode::OK);
            too_large(status)
        }
        Refusal::Closed(_) => {
            let detail = format!("the intent `{intent}` was closed by somebody, and is not sent");
            Error::new(ErrorKind::Closed, detail).effect_is(Effect::Maybe)
        }
        _ => {
            let detail = format!("the outcome of the intent `{intent}` is unknown, and it is not sent again");
            Error::new(ErrorKind::Unknown, detail).effect_is(Effect::Maybe)
        }
    }
}
