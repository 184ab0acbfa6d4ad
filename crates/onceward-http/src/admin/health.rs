//! The health checks: `/healthz` (the process is alive) and `/readyz` (the store takes writes, and the upstream answers).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use onceward::{Ask, Error, ErrorKind, Fingerprint, Id, OnDuplicate, OnUnknown, Onceward, Policy, Stopped};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Admin;
use super::json::Json;

/// A part that has not answered within this time is not ready.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long a result is reused: asking more often than this costs nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a write is tried while writes succeed. After one that failed, every look tries again.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// How long a claim of a process that died while it tried a write is there.
const PROBE_LEASE: Duration = Duration::from_secs(2);

/// The conditions for accepting traffic.
#[derive(Debug, Default)]
pub struct Readiness {
    draining: AtomicBool,
    upstream: Option<String>,
    last: Mutex<Option<(Instant, PartResults)>>,
    /// When a write last succeeded.
    written: StdMutex<Option<Instant>>,
}

/// The result of each check.
#[derive(Clone, Debug)]
struct PartResults {
    store: Result<(), String>,
    upstream: Option<Result<(), String>>,
}

impl Readiness {
    /// The store has to answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// This `host:port` has to accept a connection, too.
    pub fn with_upstream(mut self, upstream: impl Into<String>) -> Self {
        self.upstream = Some(upstream.into());
        self
    }

    /// Not ready from now on: work in progress is finished, and no new traffic should come.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    async fn parts(&self, onceward: &Onceward) -> PartResults {
        let mut last = self.last.lock().await;
        if let Some((at, parts)) = &*last
            && at.elapsed() < LOOK_EVERY
        {
            return parts.clone();
        }
        let upstream = async {
            match &self.upstream {
                Some(upstream) => Some(within(TcpStream::connect(upstream)).await.map(drop)),
                None => None,
            }
        };
        let store = within(async { self.probe_store(onceward).await.map_err(|error| reason(&error)) });
        let (store, upstream) = tokio::join!(store, upstream);
        let parts = PartResults { store, upstream };
        *last = Some((Instant::now(), parts.clone()));
        parts
    }
}

impl Readiness {
    /// Reads, and now and then writes: a store on a full or read-only disk still reads.
    async fn probe_store(&self, onceward: &Onceward) -> Result<(), Error> {
        let probe = Id::new("onceward", "readyz", "probe")?;
        let written = *self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.is_some_and(|at| at.elapsed() < WRITE_EVERY) {
            return onceward.receipt(&probe).await.map(drop);
        }
        let written = try_write(onceward, probe).await;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = written.is_ok().then(Instant::now);
        written
    }
}

/// Claims an intent and releases it: two writes, and nothing is left.
async fn try_write(onceward: &Onceward, probe: Id) -> Result<(), Error> {
    let policy = Policy::http()
        .to_builder()
        .with_lease(PROBE_LEASE)
        .with_on_unknown(OnUnknown::Retry)
        .with_on_duplicate(OnDuplicate::Conflict)
        .build()?;
    let ask = Ask::new(probe, Fingerprint::of(b""), policy);
    match onceward.run(ask, async |_| Err(Stopped::before_effect("a probe"))).await {
        // A refusal: another process tries at this moment.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Stopped => Ok(()),
        Err(error) => Err(error),
    }
}

/// The public reason why the store is not ready. The error may name hosts and databases, so it is only logged.
fn reason(error: &Error) -> &'static str {
    tracing::warn!(%error, "the store is not ready");
    match error.kind() {
        ErrorKind::Unavailable => "cannot be reached",
        ErrorKind::Full => "has no room left",
        ErrorKind::Overloaded => "is overloaded",
        _ => "failed; the log says why",
    }
}

async fn within<T, E: ToString>(answer: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match timeout(ANSWER_WITHIN, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {ANSWER_WITHIN:?}")),
    }
}

pub(super) async fn healthz() -> &'static str {
    "alive\n"
}

/// 200 if traffic may come; otherwise 503, and the body says which part is not ready.
pub(super) async fn readyz(State(state): State<Arc<Admin>>) -> Response {
    let draining = state.readiness.draining.load(Ordering::Relaxed);
    let parts = state.readiness.parts(&state.onceward).await;
    let ready = !draining && parts.store.is_ok() && parts.upstream.as_ref().is_none_or(Result::is_ok);
    let word = |part: &Result<(), String>| match part {
        Ok(()) => "ready".to_owned(),
        Err(why) => format!("not ready: {why}"),
    };
    let mut body = json!({ "ready": ready, "draining": draining, "store": word(&parts.store) });
    if let Some(upstream) = &parts.upstream {
        body["upstream"] = word(upstream).into();
    }
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

#[cfg(test)]
#[path = "health_test.rs"]
mod tests;
