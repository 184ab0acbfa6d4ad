//! The retry loop of one call: sends, waits, and asks the host's retry budget and circuit breaker. The layer and
//! the client share it; they differ only in how one try is made.

use std::time::{Duration, SystemTime};

use onceward::TokioRuntime;
use tokio::time::Instant;

use super::breaker::{BreakerDecision, WhenOpen};
use super::counts::Counters;
use super::hosts::{Host, Hosts};
use super::prepared_request::Key;
use super::random::Chance;
use super::report::{CallReport, FAILURES_MAX, FailedTry, FailureCause};
use super::retry_config::RetryConfig;
use super::retry_decision::{Sent, TryResult};
use super::retry_state::{Next, RetryState, StopReason};

/// What all calls of a client or layer share.
#[derive(Debug)]
pub(crate) struct RetryContext {
    pub(crate) config: RetryConfig,
    pub(crate) hosts: Hosts,
    pub(crate) counters: Counters,
    /// The source of random keys.
    pub(crate) runtime: TokioRuntime,
    start: Instant,
}

impl RetryContext {
    pub(crate) fn new(config: RetryConfig) -> Self {
        Self {
            config,
            hosts: Hosts::new(config),
            counters: Counters::default(),
            runtime: TokioRuntime::new(),
            start: Instant::now(),
        }
    }

    /// Monotonic time since an arbitrary start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A key for a request that has none.
    pub(crate) fn new_key(&self) -> Key {
        Key::random(&self.runtime, SystemTime::now())
    }
}

/// The result of one try.
pub(crate) struct Try<T> {
    /// What the next decision needs to know.
    pub(crate) tried: TryResult,
    /// Why there is no answer, for the report.
    pub(crate) no_answer: Option<String>,
    /// How long the server honours the key, if this answer said so.
    pub(crate) honoured_for: Option<Duration>,
    /// The result of the call if this is its last try.
    pub(crate) value: T,
}

/// A call that has ended.
pub(crate) struct CallResult<T> {
    pub(crate) ended: CallEnd<T>,
    pub(crate) report: CallReport,
    /// Whether anything may have reached the server.
    pub(crate) was_sent: Sent,
}

/// How a call ended.
pub(crate) enum CallEnd<T> {
    /// With the result of its last try.
    Finished(T),
    /// Stopped before it had a final result; with the last try, if there was one.
    Stopped(StopReason, Option<T>),
}

/// Runs a call to its end. `trying` makes one try: given its number and how long it may take.
/// Dropping the future stops the call; a request that was sent stays sent.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice, and every call carries them along"
)]
pub(crate) fn drive<T, F, M>(
    shared: &RetryContext,
    host: &Host,
    mut state: RetryState,
    mut trying: F,
) -> impl Future<Output = CallResult<T>>
where
    F: FnMut(u32, Duration) -> M,
    M: Future<Output = Try<T>>,
{
    async move {
        let began = shared.now();
        let mut now = began;
        let mut report = CallReport::default();
        let mut last = None;
        shared.counters.calls.one();
        let ended = 'tries: loop {
            // A try without time would be cut off at an arbitrary point: whether it was sent would be chance.
            if let Err(why) = state.may_try(now) {
                break CallEnd::Stopped(why, last);
            }
            let decision = loop {
                let decision = host.ask(now, state.tries() + 1);
                let BreakerDecision::Shut { retry_in } = decision else { break decision };
                // Boxed like the pause below.
                let waited = Box::pin(wait_for_breaker(shared, &state, retry_in)).await;
                report.paused += waited.paused;
                if let Some(why) = waited.stopped {
                    break 'tries CallEnd::Stopped(why, last);
                }
                now = shared.now();
            };
            let (number, at_most) = state.begin(now);
            shared.counters.tries.one();
            if number > 1 {
                shared.counters.retries.one();
            }
            let Try { tried, no_answer, honoured_for, value } = trying(number, at_most).await;
            now = shared.now();
            host.tell(now, decision, tried.went_well());
            if let Some(left) = honoured_for {
                state.honoured(now, left);
            }
            let next = state.next(now, &tried, Chance::draw);
            if let Next::Finish = next {
                break CallEnd::Finished(value);
            }
            let cause = record_failure(shared, number, tried, no_answer);
            last = Some(value);
            // Boxed to keep the future of every call small: most calls never wait here.
            let paused = Box::pin(pause(shared, host, &mut state, next));
            let Paused { paused, stopped } = paused.await;
            now = shared.now();
            report.paused += paused;
            if report.failures.len() < FAILURES_MAX {
                report.failures.push(FailedTry { cause, paused });
            }
            if let Some(why) = stopped {
                break CallEnd::Stopped(why, last);
            }
        };
        report.tries = state.tries();
        report.took = now.saturating_sub(began);
        if let CallEnd::Stopped(why, _) = &ended {
            count_stop(&shared.counters, *why);
            tracing::debug!(?why, %report, "a call was stopped");
        }
        CallResult { ended, report, was_sent: state.was_sent() }
    }
}

/// The pause before the next try.
struct Paused {
    paused: Duration,
    /// Why there is no next try.
    stopped: Option<StopReason>,
}

/// Waits until the next try may begin, or until the call must stop.
async fn pause(shared: &RetryContext, host: &Host, state: &mut RetryState, mut next: Next) -> Paused {
    let mut paused = Duration::ZERO;
    let stopped = loop {
        match next {
            Next::Finish => unreachable!("only the result of a try ends a call with it"),
            Next::Stop(why) => break Some(why),
            Next::Retry { pause } => {
                tokio::time::sleep(pause).await;
                paused += pause;
                let now = shared.now();
                // The machine may have been suspended during the pause.
                if let Err(why) = state.may_try(now) {
                    break Some(why);
                }
                match host.retry(now) {
                    Ok(()) => break None,
                    Err(retry_in) => next = state.wait_for_budget(now, retry_in, Chance::draw),
                }
            }
        }
    };
    Paused { paused, stopped }
}

/// Waits until the breaker may let a probe through, where the call is to wait for that.
async fn wait_for_breaker(shared: &RetryContext, state: &RetryState, retry_in: Duration) -> Paused {
    let shut = Paused { paused: Duration::ZERO, stopped: Some(StopReason::Shut { retry_in }) };
    if shared.config.breaker.when_open == WhenOpen::EndCall {
        return shut;
    }
    let Next::Retry { pause } = state.wait_for_breaker(shared.now(), retry_in, Chance::draw) else {
        return shut;
    };
    tokio::time::sleep(pause).await;
    // The machine may have been suspended during the pause.
    Paused { paused: pause, stopped: state.may_try(shared.now()).err() }
}

fn record_failure(
    shared: &RetryContext,
    number: u32,
    tried: TryResult,
    no_answer: Option<String>,
) -> FailureCause {
    let cause = match tried {
        TryResult::Answered { status, .. } => FailureCause::Status(status.as_u16()),
        TryResult::Failed(_) | TryResult::Impossible => {
            shared.counters.tries_failed.one();
            FailureCause::NoAnswer(no_answer.unwrap_or_default())
        }
    };
    tracing::debug!(number, %cause, "a try failed or must be repeated");
    cause
}

fn count_stop(counters: &Counters, why: StopReason) {
    match why {
        StopReason::Budget => counters.stopped_by_budget.one(),
        StopReason::Shut { .. } => counters.stopped_by_breaker.one(),
        StopReason::Tries | StopReason::Deadline => counters.stopped_by_limits.one(),
        StopReason::Expired | StopReason::Unknown => counters.unknown.one(),
    }
}
