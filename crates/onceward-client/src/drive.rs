//! Drives one call along its course: sends, waits, asks the host's budget and breaker. The layer and
//! the client both go through here; they differ only in how one try is made.

use std::time::{Duration, SystemTime};

use onceward::TokioRuntime;
use tokio::time::Instant;

use super::breaker::Passage;
use super::chance::Chance;
use super::counts::Counters;
use super::course::{Course, Next, Why};
use super::hosts::{Host, Hosts};
use super::judge::{Departed, Tried};
use super::prepared::Key;
use super::report::{FAILURES_MAX, Failure, Report, What};
use super::terms::Terms;

/// What all calls of a client or layer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) terms: Terms,
    pub(crate) hosts: Hosts,
    pub(crate) counters: Counters,
    /// For keys.
    pub(crate) world: TokioRuntime,
    start: Instant,
}

impl Shared {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            hosts: Hosts::new(terms),
            counters: Counters::default(),
            world: TokioRuntime::new(),
            start: Instant::now(),
        }
    }

    /// Time since an arbitrary start; never goes back, whatever is done to the machine's clock.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A key for a request that has none.
    pub(crate) fn new_key(&self) -> Key {
        Key::random(&self.world, SystemTime::now())
    }
}

/// One try that was made.
pub(crate) struct Try<T> {
    /// What became of it.
    pub(crate) tried: Tried,
    /// Why there is no answer, for people.
    pub(crate) no_answer: Option<String>,
    /// How long the server has just said that it honours the key.
    pub(crate) honoured_for: Option<Duration>,
    /// What to give if this is the end.
    pub(crate) value: T,
}

/// How a call ended.
pub(crate) struct Driven<T> {
    pub(crate) ended: Ended<T>,
    pub(crate) report: Report,
    /// Whether anything may have reached the server.
    pub(crate) departed: Departed,
}

/// With what a call ended.
pub(crate) enum Ended<T> {
    /// With this.
    Given(T),
    /// Before its end; with the last try, if there was one.
    Stopped(Why, Option<T>),
}

/// Drives a call to its end. `trying` makes one try: given its number and how long it may take.
/// Dropping this stops the call where it is: what was sent stays sent.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice, and every call carries them along"
)]
pub(crate) fn drive<T, F, M>(
    shared: &Shared,
    host: &Host,
    mut course: Course,
    mut trying: F,
) -> impl Future<Output = Driven<T>>
where
    F: FnMut(u32, Duration) -> M,
    M: Future<Output = Try<T>>,
{
    async move {
        let began = shared.now();
        let mut now = began;
        let mut report = Report::default();
        let mut last = None;
        shared.counters.calls.one();
        let ended = loop {
            let passage = host.ask(now, course.tries() + 1);
            if let Passage::Shut { retry_in } = passage {
                break Ended::Stopped(Why::Shut { retry_in }, last);
            }
            let (number, at_most) = course.begin(now);
            shared.counters.tries.one();
            if number > 1 {
                shared.counters.retries.one();
            }
            let Try { tried, no_answer, honoured_for, value } = trying(number, at_most).await;
            now = shared.now();
            host.tell(now, passage, tried.went_well());
            if let Some(left) = honoured_for {
                course.honoured(now, left);
            }
            let next = course.next(now, &tried, Chance::draw);
            if let Next::Give = next {
                break Ended::Given(value);
            }
            let what = note(shared, number, tried, no_answer);
            last = Some(value);
            // Boxed: most calls never wait here, and all carry it along.
            let paused = Box::pin(pause(shared, host, &mut course, next));
            let Paused { paused, stopped } = paused.await;
            now = shared.now();
            report.paused += paused;
            if report.failures.len() < FAILURES_MAX {
                report.failures.push(Failure { what, paused });
            }
            if let Some(why) = stopped {
                break Ended::Stopped(why, last);
            }
        };
        report.tries = course.tries();
        report.took = now.saturating_sub(began);
        if let Ended::Stopped(why, _) = &ended {
            count(&shared.counters, *why);
            tracing::debug!(?why, %report, "a call was stopped");
        }
        Driven { ended, report, departed: course.departed() }
    }
}

/// How a call has waited for its next try.
struct Paused {
    paused: Duration,
    /// Why there is none.
    stopped: Option<Why>,
}

/// Waits until the next try may begin, or may not any more.
async fn pause(shared: &Shared, host: &Host, course: &mut Course, mut next: Next) -> Paused {
    let mut paused = Duration::ZERO;
    let stopped = loop {
        match next {
            Next::Give => unreachable!("only the judgement of a try gives"),
            Next::Stop(why) => break Some(why),
            Next::Again { pause, patient } => {
                tokio::time::sleep(pause).await;
                paused += pause;
                let now = shared.now();
                // A machine that slept through the pause may wake up too late.
                if let Err(why) = course.room(now) {
                    break Some(why);
                }
                if host.retry(now) {
                    break None;
                }
                if !patient {
                    break Some(Why::Budget);
                }
                next = course.linger(now, Chance::draw);
            }
        }
    };
    Paused { paused, stopped }
}

fn note(shared: &Shared, number: u32, tried: Tried, no_answer: Option<String>) -> What {
    let what = match tried {
        Tried::Answered { status, .. } => What::Status(status.as_u16()),
        Tried::Failed(_) | Tried::Impossible => {
            shared.counters.tries_failed.one();
            What::NoAnswer(no_answer.unwrap_or_default())
        }
    };
    tracing::debug!(number, %what, "a try is not the last");
    what
}

fn count(counters: &Counters, why: Why) {
    match why {
        Why::Budget => counters.stopped_by_budget.one(),
        Why::Shut { .. } => counters.stopped_by_breaker.one(),
        Why::Tries | Why::Deadline => counters.stopped_by_terms.one(),
        Why::Expired | Why::Unknown => counters.unknown.one(),
    }
}
