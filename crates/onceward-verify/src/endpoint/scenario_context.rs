//! The context of a scenario: new keys, counted requests, the effect oracle, randomness, and a trace.

use std::fmt::Write;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::compare;
use super::error::{Error, ErrorKind, Result};
use super::message::{Answer, Request, Shot};
use super::scenario::Stop;
use super::server::Server;
use super::setup::Setup;
use super::trace::Trace;
use super::volley::{self, Aimed};
use crate::random::Random;

/// Tries of one key that is being waited for.
pub(super) const TRIES_MAX: u64 = 40;
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
}

/// What a scenario works with.
pub(super) struct ScenarioContext<'a> {
    pub(super) setup: &'a Setup,
    pub(super) baseline: Option<Baseline>,
    pub(super) server: Option<Server>,
    pub(super) random: Random,
    pub(super) trace: Trace,
    pub(super) notes: Vec<String>,
    /// When each last byte of a volley left, after the first one.
    pub(super) spreads: Vec<Vec<Duration>>,
    /// When the server was last killed.
    pub(super) killed: Option<Instant>,
    /// Requests sent in this scenario, and how many its plan allows.
    pub(super) sent: u64,
    pub(super) allowed: u64,
    run: [u8; 8],
    keys: u64,
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
            trace: Trace::new(),
            notes: Vec::new(),
            spreads: Vec::new(),
            killed: None,
            sent: 0,
            allowed: 0,
            run,
            keys: 0,
            progress,
        })
    }

    pub(super) fn baseline(&self) -> &Baseline {
        self.baseline.as_ref().expect("the baseline comes before all scenarios")
    }

    /// What names this run in its keys.
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
        let request = self.setup.request().field(&self.setup.check.key_header, self.setup.written(key));
        Request { key: key.to_owned(), ..request }
    }

    /// Begins a new timeline.
    pub(super) fn round(&mut self) {
        self.trace = Trace::new();
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
        let count = aimed.len() as u64;
        self.sent += count;
        assert!(self.sent <= self.allowed, "{} requests where the plan allows {}", self.sent, self.allowed);
        let together = aimed.len() > 1 && aimed.iter().all(|aimed| aimed.after.is_zero());
        let mut shots = volley::fire(aimed, check.version, check.timeout, released)
            .await
            .map_err(|error| Stop::Inconclusive(format!("the endpoint cannot be reached: {error}")))?;
        for answer in shots.iter_mut().filter_map(Shot::answer_mut) {
            answer.meaning = check.meaning(answer.status);
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
        let patience = self.setup.patience();
        let (start, mut pause) = (Instant::now(), Duration::from_millis(10));
        for _ in 1..TRIES_MAX {
            let shot = self.send(request.clone()).await?;
            if !shot.is_not_now() || shot.sent.duration_since(start) > patience {
                return Ok(shot);
            }
            tokio::time::sleep(pause).await;
            // Doubling to a twentieth of the whole: the tries last for longer than the patience.
            pause = (pause * 2).min(patience / 20);
        }
        self.send(request).await
    }

    /// The same, where there must be an answer in the end.
    pub(super) async fn settle(&mut self, request: Request) -> Result<Shot, Stop> {
        let start = Instant::now();
        let shot = self.retry_until_answered(request).await?;
        if !shot.is_not_now() {
            return Ok(shot);
        }
        let (waited, lease) = (start.elapsed(), self.setup.check.lease);
        Err(Stop::violated(format!(
            "the key is wedged: {waited:.1?} later it still gets {}, where the lease is {lease:?}",
            shot.ending
        )))
    }

    /// The effects so far; none if nobody counts them.
    pub(super) async fn effects(&self) -> Result<Option<i64>, Stop> {
        self.setup.oracle.count().await.map_err(|error| Stop::Inconclusive(error.to_string()))
    }

    /// How many runs there have been since `before`, once the count has settled. It is waited for until
    /// there are as many as expected; none if nobody counts them.
    pub(super) async fn runs(&self, before: Option<i64>, expected: i64) -> Result<Option<i64>, Stop> {
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
                return Ok(Some((settled - before + unit - 1).div_euclid(unit)));
            }
        }
    }

    /// How this answer differs from the one that it should be a replay of.
    pub(super) fn differences(&mut self, first: &Answer, again: &Answer) -> Vec<String> {
        let volatile = &self.setup.check.volatile_fields;
        let added = compare::additions(first, again, volatile);
        let differences = compare::differences(first, again, volatile);
        if !added.is_empty() {
            self.note(format!("only some answers carry `{}`", added.join("`, `")));
        }
        differences
    }

    /// A number of microseconds up to this long, by chance.
    pub(super) fn moment(&mut self, at_most: Duration) -> Duration {
        self.random.micros(0, u64::try_from(at_most.as_micros()).unwrap_or(u64::MAX))
    }
}
