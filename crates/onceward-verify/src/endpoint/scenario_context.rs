//! The context of a scenario: new keys, counted requests, the effect oracle, randomness, and a trace.

use std::fmt::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::check::KeyNotation;
use super::compare::{self, Differences};
use super::error::{Error, ErrorKind, Result};
use super::fault::{Cause, Fault, FaultKind};
use super::fresh;
use super::message::{Answer, Ending, Request, Shot};
use super::scenario::Stop;
use super::server::{self, Server};
use super::setup::{Setup, with_value};
use super::single_effect::effects;
use super::trace::{Timeline, Trace};
use super::volley::{self, Aimed};
use crate::random::Random;

/// Tries of one key that is being waited for.
pub(super) const TRIES_MAX: u64 = 40;
/// "Not now" for a key that is done, this many times in a row: it stays.
const STAYS_AFTER: u64 = 5;
/// What an effect may take to be counted after its answer.
const COUNTED_WITHIN: Duration = Duration::from_secs(2);
/// What a second effect gets to show itself.
const SETTLED_AFTER: Duration = Duration::from_millis(15);

/// What one plain request does; everything else is measured against it.
#[derive(Clone, Debug)]
pub(super) struct Baseline {
    /// The first key of the run and its answer, to be asked for once more at the end.
    pub(super) first: (String, Answer),
    /// Effects of one request, as the oracle counts them.
    pub(super) unit: i64,
    /// When that was.
    pub(super) at: Instant,
    /// How long one takes, where nothing holds it up.
    pub(super) took: Duration,
    /// Whether two requests that differ only in their keys get answers that differ.
    pub(super) tells_apart: bool,
    /// Whether a plain retry has no effect.
    pub(super) deduplicates: bool,
    /// The status of a replay, if a plain retry got the first body with another status that does not say success.
    pub(super) replayed_as: Option<u16>,
    /// What the other way to write a key is here.
    pub(super) other_form: OtherForm,
}

/// What becomes of a key that is known, written in the other form: raw instead of quoted, or the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherForm {
    /// It is the same key.
    Same,
    /// It is another key.
    Another,
    /// It is refused.
    Refused,
    /// Nobody can tell.
    Unknown,
}

/// What a scenario works with.
pub(super) struct ScenarioContext<'a> {
    pub(super) setup: &'a Setup,
    pub(super) baseline: Option<Baseline>,
    pub(super) server: Option<Server>,
    pub(super) random: Random,
    pub(super) trace: Trace,
    pub(super) notes: Vec<String>,
    /// The first replay of this scenario that was not exact, and its round. It is reported at the end: it must not hide
    /// what later rounds show.
    pub(super) inexact: Option<(Fault, Timeline)>,
    /// Keys of this scenario that are held for an operator.
    pub(super) held: u64,
    /// When each last byte of a volley left, after the first one.
    pub(super) spreads: Vec<Vec<Duration>>,
    /// When the server was last killed.
    pub(super) killed: Option<Instant>,
    /// Requests sent in this scenario, and how many its plan allows.
    pub(super) sent: u64,
    pub(super) allowed: u64,
    /// How keys are written.
    pub(super) key_notation: KeyNotation,
    /// Fields that the last login gave.
    pub(super) login: Vec<(String, String)>,
    /// Fields that all logins gave.
    pub(super) logins: Vec<(String, String)>,
    slow_took: Option<Duration>,
    run: [u8; 8],
    keys: u64,
    /// Sendings with fields of their own so far.
    fresh: u64,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> ScenarioContext<'a> {
    pub(super) fn new(setup: &'a Setup, progress: &'a (dyn Fn(u64) + Sync)) -> Result<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        Ok(Self {
            setup,
            baseline: None,
            server: None,
            random: Random::new(setup.check.seed),
            trace: Trace::new(&setup.check.volatile_fields),
            notes: Vec::new(),
            inexact: None,
            held: 0,
            spreads: Vec::new(),
            killed: None,
            sent: 0,
            allowed: 0,
            key_notation: setup.check.key_notation,
            login: Vec::new(),
            logins: Vec::new(),
            slow_took: None,
            run,
            keys: 0,
            fresh: 0,
            progress,
        })
    }

    pub(super) fn baseline(&self) -> &Baseline {
        self.baseline.as_ref().expect("the baseline comes before all scenarios")
    }

    /// The name of this run in its keys.
    pub(super) fn run_name(&self) -> String {
        self.run.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// A key that nobody has used: in the form of a UUID (version 8: made by its own rules), because many
    /// services accept nothing else.
    pub(super) fn key(&mut self) -> String {
        self.keys += 1;
        let run = self.run_name();
        format!("{}-{}-8{}-8000-{:012x}", &run[..8], &run[8..12], &run[13..16], self.keys)
    }

    /// The request under test, with this key.
    pub(super) fn request(&self, key: &str) -> Request {
        self.with_key(self.plain(), key)
    }

    /// The same request, made slow: some servers lose patience with what takes long.
    pub(super) fn slow(&self, request: Request) -> Request {
        match &self.setup.check.slow_header {
            Some((name, value)) => request.replace(name, value.as_str()),
            None => request,
        }
    }

    /// How long a slow request takes. One is sent to find out, once in a run.
    pub(super) async fn slow_took(&mut self) -> Result<Duration, Stop> {
        if let Some(took) = self.slow_took {
            return Ok(took);
        }
        let key = self.key();
        let shot = self.send(self.slow(self.request(&key)).called("slow, own key")).await?;
        let took = shot.ended - shot.sent;
        self.slow_took = Some(took);
        Ok(took)
    }

    /// The request under test, without a key.
    pub(super) fn plain(&self) -> Request {
        self.login
            .iter()
            .fold(self.setup.request(), |request, (name, value)| request.replace(name, value.as_str()))
    }

    /// A request with this key: in its field, or in its body.
    pub(super) fn with_key(&self, request: Request, key: &str) -> Request {
        let request = Request { key: key.to_owned(), ..request };
        let check = &self.setup.check;
        if check.key_parameter.is_some() {
            // It is put into the URL when it is known which one.
            return request;
        }
        match &check.key_pointer {
            None => request.replace(&check.key_header, self.written(key)),
            Some(_) => {
                let body = self.body_with_key(&request.body, key);
                request.body(body)
            }
        }
    }

    /// A request with another body, under the same key.
    pub(super) fn with_body(&self, request: Request, body: &Bytes) -> Request {
        let body = self.body_with_key(body, &request.key);
        request.body(body)
    }

    /// A body with this key, where keys are in bodies.
    fn body_with_key(&self, body: &Bytes, key: &str) -> Bytes {
        let Some(pointer) = &self.setup.check.key_pointer else { return body.clone() };
        let json = serde_json::from_slice(body).ok();
        with_value(json.as_ref(), pointer, key).map_or_else(|| body.clone(), |json| json.to_string().into())
    }

    /// How a key is written into its field.
    pub(super) fn written(&self, key: &str) -> Vec<u8> {
        match self.key_notation {
            KeyNotation::Quoted => format!("\"{key}\"").into_bytes(),
            KeyNotation::Raw => key.as_bytes().to_vec(),
        }
    }

    /// Begins a new timeline.
    pub(super) fn round(&mut self) {
        self.trace = Trace::new(&self.setup.check.volatile_fields);
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Sends one request.
    pub(super) async fn send(&mut self, request: Request) -> Result<Shot, Stop> {
        let mut shots = self.fire(vec![request.into()]).await?;
        Ok(shots.remove(0))
    }

    /// Sends all of these with their last bytes together.
    pub(super) async fn volley(&mut self, requests: Vec<Request>) -> Result<Vec<Shot>, Stop> {
        self.fire(requests.into_iter().map(Aimed::from).collect()).await
    }

    /// Sends all of these, each when it is meant to.
    pub(super) async fn fire(&mut self, aimed: Vec<Aimed>) -> Result<Vec<Shot>, Stop> {
        self.fire_and_tell(aimed, None).await
    }

    /// The same, and says when the first last byte is about to leave.
    pub(super) async fn fire_and_tell(
        &mut self,
        aimed: Vec<Aimed>,
        released: Option<oneshot::Sender<Instant>>,
    ) -> Result<Vec<Shot>, Stop> {
        let check = &self.setup.check;
        let mut aimed = aimed;
        for aimed in &mut aimed {
            if let Some(name) = &check.key_parameter
                && !aimed.request.key.is_empty()
            {
                let Request { place, key, .. } = &aimed.request;
                aimed.request.place = place.with_parameter(name, Some(key));
            }
            fresh::fill(&mut aimed.request, &check.fresh_fields, &mut self.random, &mut self.fresh);
        }
        let count = aimed.len() as u64;
        self.sent += count;
        assert!(self.sent <= self.allowed, "{} requests where the plan allows {}", self.sent, self.allowed);
        let together = aimed.len() > 1 && aimed.iter().all(|aimed| aimed.after.is_zero());
        let mut shots = volley::fire(aimed, check.version, check.timeout, released)
            .await
            .map_err(|error| Stop::Inconclusive(format!("the endpoint cannot be reached: {error}")))?;
        for answer in shots.iter_mut().filter_map(Shot::answer_mut) {
            answer.meaning = check.meaning(answer.status, &answer.body);
        }
        (self.progress)(count);
        if together && let Some(first) = shots.iter().map(|shot| shot.sent).min() {
            self.spreads.push(shots.iter().map(|shot| shot.sent - first).collect());
        }
        self.trace.shots(&shots);
        Ok(shots)
    }

    /// Retries until the answer is not "not now", for as long as a key may stay unavailable. The last answer counts by
    /// when its request was sent: an endpoint may let it wait for longer than that.
    pub(super) async fn retry_until_answered(&mut self, request: Request) -> Result<Shot, Stop> {
        self.retry_until(request, |answer| !answer.is_not_now()).await
    }

    /// The same, until this is said of the answer. A request whose connection broke is not sent again; one that is never
    /// answered is, since a duplicate may wait for the first.
    pub(super) async fn retry_until(
        &mut self,
        request: Request,
        is_final: impl Fn(&Answer) -> bool,
    ) -> Result<Shot, Stop> {
        self.retry(request, |answer, _| is_final(answer)).await
    }

    /// The same, with the number of the try.
    async fn retry(
        &mut self,
        request: Request,
        is_final: impl Fn(&Answer, u64) -> bool,
    ) -> Result<Shot, Stop> {
        let patience = self.setup.patience();
        let (start, mut pause) = (Instant::now(), Duration::from_millis(10));
        for tries in 1..TRIES_MAX {
            let shot = self.send(request.clone()).await?;
            let is_over = match &shot.ending {
                Ending::Answered(answer) => is_final(answer, tries),
                Ending::TimedOut => false,
                Ending::Broke(_) | Ending::HungUp => true,
            };
            if is_over || shot.sent.duration_since(start) > patience {
                return Ok(shot);
            }
            tokio::time::sleep(pause).await;
            // Doubling to a twentieth of the whole: the tries last for longer than the patience.
            pause = (pause * 2).min(patience / 20);
        }
        self.send(request).await
    }

    /// Sends a request under a key that is done with something else. Nothing is running any more, so "not now" that stays
    /// is a refusal; an endpoint that has too much to do is asked again for longer.
    pub(super) async fn reuse(&mut self, request: Request) -> Result<Shot, Stop> {
        let stays = |answer: &Answer, tries: u64| tries >= STAYS_AFTER && !answer.is_overload();
        self.retry(request, |answer, tries| !answer.is_not_now() || stays(answer, tries)).await
    }

    /// Retries until the answer is not "not now" or is a replay, whatever its status says.
    pub(super) async fn retry_until_replayed(
        &mut self,
        request: Request,
        first: Option<&Answer>,
    ) -> Result<Shot, Stop> {
        let baseline = self.baseline.clone();
        self.retry_until(request, |answer| {
            !answer.is_not_now() || is_replay(baseline.as_ref(), first, answer)
        })
        .await
    }

    /// The same, where there must be an answer in the end.
    pub(super) async fn settle(&mut self, request: Request, first: Option<&Answer>) -> Result<Shot, Stop> {
        let start = Instant::now();
        let shot = self.retry_until_replayed(request, first).await?;
        if self.is_stuck(&shot, first) {
            return Err(self.wedged(&shot, start.elapsed()).or_from(Cause::Stuck));
        }
        Ok(shot)
    }

    /// Whether a last try was told "not now" or never answered.
    pub(super) fn is_stuck(&self, last: &Shot, first: Option<&Answer>) -> bool {
        match &last.ending {
            Ending::TimedOut => true,
            Ending::Answered(answer) => {
                answer.is_not_now() && !is_replay(self.baseline.as_ref(), first, answer)
            }
            Ending::Broke(_) | Ending::HungUp => false,
        }
    }

    /// Keeps the first replay of this scenario that was not exact, for its end.
    pub(super) fn is_inexact(&mut self, why: impl Into<String>, cause: Cause) {
        if self.inexact.is_none() {
            let fault = Fault::new(FaultKind::InexactReplay, why).or_from(cause);
            self.inexact = Some((fault, self.trace.timeline()));
        }
    }

    /// That a key still gets "not now" after this long.
    pub(super) fn wedged(&self, shot: &Shot, waited: Duration) -> Stop {
        let lease = self.setup.check.lease;
        Stop::violated(
            FaultKind::Wedged,
            format!(
                "the key is wedged: {waited:.1?} later it still gets {}, where the lease is {lease:?}",
                shot.ending
            ),
        )
    }

    /// The effects so far; none if nobody counts them.
    pub(super) async fn effects(&self) -> Result<Option<i64>, Stop> {
        self.setup.oracle.count().await.map_err(|error| Stop::Inconclusive(error.to_string()))
    }

    /// How many runs there have been since `before`, once the count has settled. It is waited for until
    /// there are as many as expected; none if nobody counts them.
    pub(super) async fn runs(&mut self, before: Option<i64>, expected: i64) -> Result<Option<i64>, Stop> {
        let Some(before) = before else { return Ok(None) };
        let unit = self.baseline.as_ref().map_or(1, |baseline| baseline.unit);
        let start = Instant::now();
        loop {
            let now = self.effects().await?.unwrap_or(before);
            if now - before < expected * unit && start.elapsed() < COUNTED_WITHIN {
                tokio::time::sleep(SETTLED_AFTER).await;
                continue;
            }
            tokio::time::sleep(SETTLED_AFTER).await;
            let settled = self.effects().await?.unwrap_or(before);
            if settled == now || start.elapsed() > COUNTED_WITHIN * 2 {
                // A part of an effect too many is one too many.
                let runs = (settled - before + unit - 1).div_euclid(unit);
                // Answers that are all alike do not show it.
                if runs > expected.max(1) || runs < expected {
                    self.trace.mark(effects(runs));
                }
                return Ok(Some(runs));
            }
        }
    }

    /// That an answer is a replay of the first one. That it is not an exact one is kept for the end of the scenario.
    pub(super) fn same_answer(&mut self, what: &str, first: &Answer, again: &Answer) -> Result<(), Stop> {
        let volatile = &self.setup.check.volatile_fields;
        let added = compare::additions(first, again, volatile);
        let found = compare::differences(first, again, volatile);
        if !added.is_empty() {
            self.note(format!("only some answers carry `{}`", added.join("`, `")));
        }
        let Some(Differences { text, cause, is_another }) = found else { return Ok(()) };
        if is_another {
            let why = format!("{what}: {text}");
            return Err(Stop::violated(FaultKind::LostAnswer, why).or_from(Cause::Replay(cause)));
        }
        self.is_inexact(format!("{what}: {text}"), Cause::Replay(cause));
        Ok(())
    }

    /// Runs what has to be run after each start, and keeps the fields that it prints.
    pub(super) async fn log_in(&mut self) -> Result<()> {
        if let Some(command) = &self.setup.check.ready_command {
            self.login = server::log_in(command).await?;
            self.logins.extend(self.login.iter().cloned());
        }
        Ok(())
    }

    /// A number of microseconds up to this long, by chance.
    pub(super) fn moment(&mut self, at_most: Duration) -> Duration {
        self.random.micros(0, u64::try_from(at_most.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Whether an answer is a replay of the first one, whatever its status says. Where nobody has seen the first one, it must
/// look like one: what says "in progress" may have the status of a replay.
fn is_replay(baseline: Option<&Baseline>, first: Option<&Answer>, answer: &Answer) -> bool {
    match (first, baseline) {
        (Some(first), _) => !first.body.is_empty() && answer.body == first.body,
        (None, Some(baseline)) => {
            baseline.replayed_as == Some(answer.status) && answer.resembles(&baseline.first.1)
        }
        (None, None) => false,
    }
}
