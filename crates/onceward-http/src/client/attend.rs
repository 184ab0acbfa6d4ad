//! One intent of the journal, from the claim to the recorded answer: for a caller, or for a request
//! that an earlier process left.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Ask, Attempt, Effect, Id, Outcome, Ran, Recorded, Refusal, Stopped, Verdict, World};
use tokio::sync::{Mutex, oneshot};

use super::answer::Answer;
use super::client::{Client, conclude, from_journal, too_large};
use super::contest::After;
use super::course::{Course, Why};
use super::drive::drive;
use super::error::{Error, ErrorKind, Result};
use super::journal::Journal;
use super::open::{self, Open, Put, Putting};
use super::prepared::Prepared;
use super::riding::Name;
use super::terms::Terms;
use crate::snapshot;

/// Where the request comes from.
pub(crate) enum From {
    /// From a caller.
    Caller(Box<Putting>),
    /// From the journal, where it looked like this; `attempt` is for whoever sends it now.
    Journal { seen: Box<Open>, attempt: Attempt },
}

/// Tells a caller the end of its call, once.
pub(crate) struct Telling(Option<oneshot::Sender<Result<Answer>>>);

impl Telling {
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<Answer>>) {
        let (tell, told) = oneshot::channel();
        (Self(Some(tell)), told)
    }

    fn tell(&mut self, end: Result<Answer>) {
        if let Some(tell) = self.0.take() {
            // A caller that went away does not mind.
            let _ = tell.send(end);
        }
    }
}

/// How the sending ended, before anybody knows whether that could be recorded.
struct Sent {
    /// `None` if the caller has been told.
    end: Option<Result<Answer>>,
    open: Option<Open>,
    /// Whether the intent is to be given up as unknown.
    expired: bool,
}

impl Client {
    /// Sends with a journal. An intent without a name is named by its key. The caller is told the answer
    /// as soon as it is there; what remains to be written is written by a task of its own.
    pub(crate) async fn send_journaled(
        &self,
        prepared: Box<Prepared>,
        intent: Option<String>,
        name: Name,
        call_at_most: Duration,
    ) -> Result<Answer> {
        let journal = self.journal().await?;
        let shared = &self.inner.shared;
        let id = match &intent {
            Some(name) => journal.id(name),
            None => journal.id(&prepared.key.as_ref().expect("only what has a key is journaled").text()),
        };
        let id = id.map_err(bad_name)?;
        let fingerprint = prepared.fingerprint();
        let ask = journal.ask_to_send(&id, fingerprint);
        let claim = open::claim(fingerprint, Attempt(shared.world.random()));
        let putting = journal.prepare(&id, claim, prepared, name, shared.terms.honoured_for)?;
        let (telling, mut told) = Telling::new();
        let from = From::Caller(Box::new(putting));
        let mut attending =
            Box::pin(self.clone().attend(journal.clone(), id, ask, from, call_at_most, telling));
        let mut over = false;
        let hearing = poll_fn(|cx| {
            // Its end may be there and yet be told only at the next poll: the runtime has its say.
            over = over || attending.as_mut().poll(cx).is_ready();
            Pin::new(&mut told).poll(cx)
        });
        // Beyond its own time a call still waits for what is being written.
        let heard = tokio::time::timeout(call_at_most.saturating_add(WRITING_AT_MOST), hearing).await;
        let Ok(heard) = heard else { return Err(Error::stopped(Why::Deadline, Effect::Maybe, None)) };
        if !over {
            journal.record_beside(attending);
        }
        heard.expect("a call is told its end before it is over")
    }

    /// Gets an intent to its answer: sends it, waits for whoever does, or reads what is recorded.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice, and every call carries them along"
    )]
    pub(crate) fn attend(
        self,
        journal: Arc<Journal>,
        id: Id,
        ask: Ask,
        mut from: From,
        call_at_most: Duration,
        mut telling: Telling,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let fingerprint = *ask.fingerprint();
            let mut sent: Option<Sent> = None;
            let ran = loop {
                let ran = journal.onceward.run(ask.clone(), |_lease| {
                    let (client, journal, id) = (&self, &journal, &id);
                    let (from, telling, sent) = (&mut from, &mut telling, &mut sent);
                    async move { client.work(journal, id, from, call_at_most, telling, sent).await }
                });
                let ran = ran.await;
                if sent.is_some() {
                    break ran;
                }
                match journal.after(&id, fingerprint, ran, &mut from).await {
                    After::Again => {}
                    After::Ran(ran) => break ran,
                }
            };
            if let Some(Sent { open: Some(open), expired: true, .. }) = &sent
                && let Err(error) = journal.doubt(&id, open).await
            {
                // The next one to look finds it just as expired.
                tracing::warn!(?id, %error, "an unknown outcome could not be written down");
            }
            let end = match (ran, sent) {
                (Ok(onceward::Answer::Ran(Ran { replayed: false, recorded, .. })), Some(sent)) => {
                    if let (Recorded::Yes, Some(open)) = (recorded, sent.open) {
                        journal.finished(open).await;
                    }
                    sent.end
                }
                (_, Some(Sent { end: None, .. })) => None,
                (Ok(onceward::Answer::Ran(ran)), _) => Some(self.recorded_answer(&ran.outcome)),
                (Ok(onceward::Answer::Refused(refusal)), _) => Some(Err(refused(&id, &refusal))),
                (Err(error), Some(sent)) if error.kind() == onceward::ErrorKind::Stopped => sent.end,
                (Err(error), _) => Some(Err(Error::journal(error))),
            };
            if let Some(end) = end {
                telling.tell(end);
            }
        }
    }

    /// The work under the claim: puts the request down, sends it, and says what is to be recorded.
    async fn work(
        &self,
        journal: &Journal,
        id: &Id,
        from: &mut From,
        call_at_most: Duration,
        telling: &mut Telling,
        sent: &mut Option<Sent>,
    ) -> Result<Outcome, Stopped> {
        let shared = &self.inner.shared;
        let found = journal.take_up(id, from).await;
        let now = shared.now();
        let terms = Terms { call_at_most, ..shared.terms };
        let (open, course) = match found {
            Ok(Put::New(open)) => {
                shared.counters.journaled.one();
                let course = Course::new(terms, open.stored.request.guard(), now);
                (open, course)
            }
            Ok(Put::Found(open)) => {
                shared.counters.resumed.one();
                let Some(left) = journal.honoured_for(&open) else {
                    shared.counters.unknown.one();
                    let end = Err(Error::stopped(Why::Expired, Effect::Maybe, None));
                    *sent = Some(Sent { end: Some(end), open: Some(open), expired: true });
                    return Err(Stopped::unknown("the server may have forgotten the key"));
                };
                let course = Course::new(terms, open.stored.request.guard(), now).resumed(now, left);
                (open, course)
            }
            Ok(Put::Other) => return Err(stop(sent, refused(id, &Refusal::KeyReused))),
            Ok(Put::Gone) => {
                let detail = "somebody else has finished it meanwhile";
                return Err(stop(sent, Error::new(ErrorKind::InProgress, detail)));
            }
            Err(error) => return Err(stop(sent, Error::journal(error))),
        };
        self.exchange(journal, open, course, telling, sent).await
    }

    fn exchange(
        &self,
        journal: &Journal,
        open: Open,
        course: Course,
        telling: &mut Telling,
        sent: &mut Option<Sent>,
    ) -> impl Future<Output = Result<Outcome, Stopped>> + Send {
        let (shared, exchange) = (&self.inner.shared, &self.inner.exchange);
        let request = open.request();
        let host = shared.hosts.host(request.authority());
        let open = Mutex::new(open);
        async move {
            let request = &*request;
            let trying = |number, at_most| {
                let open = &open;
                async move {
                    let made = exchange.try_once(request, number, at_most).await;
                    // The head of an answer came through and its end did not: what the head said about the
                    // key must outlive this process.
                    if let (Some(left), Err(_)) = (made.honoured_for, &made.value)
                        && let Err(error) = journal.honoured(&mut *open.lock().await, left).await
                    {
                        tracing::warn!(%error, "how long the server honours a key could not be written down");
                    }
                    made
                }
            };
            let driven = drive(shared, &host, course, trying).await;
            let open = Some(open.into_inner());
            match conclude(shared, driven) {
                Ok(answer) => {
                    let outcome = journal.outcome(answer.as_response());
                    let stays_open = stays_open(answer.status());
                    let end = if journal.records_beside() && !stays_open {
                        telling.tell(Ok(answer));
                        None
                    } else {
                        Some(Ok(answer))
                    };
                    *sent = Some(Sent { end, open, expired: false });
                    if stays_open {
                        return Err(Stopped::unknown("the credentials were not accepted"));
                    }
                    Ok(outcome)
                }
                Err(no_end) => {
                    let expired = no_end.why == Some(Why::Expired);
                    *sent = Some(Sent { end: Some(Err(no_end.error)), open, expired });
                    match no_end.too_large {
                        Some(status) => Ok(Outcome::omitted(Verdict::Succeeded, status.as_str().to_owned())),
                        None => Err(Stopped::unknown("the call was stopped before its end")),
                    }
                }
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

/// An answer that says nothing about the intent, only about the credentials: the intent stays open, to
/// be sent again with better ones.
fn stays_open(status: http::StatusCode) -> bool {
    matches!(status, http::StatusCode::UNAUTHORIZED | http::StatusCode::PROXY_AUTHENTICATION_REQUIRED)
}

/// Nothing was sent.
fn stop(sent: &mut Option<Sent>, error: Error) -> Stopped {
    let stopped = Stopped::before_effect(error.to_string());
    *sent = Some(Sent { end: Some(Err(error)), open: None, expired: false });
    stopped
}

pub(crate) fn bad_name(error: onceward::Error) -> Error {
    Error::invalid("the intent's name cannot be used").caused_by(error)
}

fn refused(id: &Id, refusal: &Refusal) -> Error {
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
        _ => {
            let detail = format!("the outcome of the intent `{intent}` is unknown, and it is not sent again");
            Error::new(ErrorKind::Unknown, detail).effect_is(Effect::Maybe)
        }
    }
}
