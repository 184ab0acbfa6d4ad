//! The HTTP client over reqwest.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onceward::{Clock, Effect, Retention, Store, StoreFuture};
use tokio::sync::OnceCell;

use super::client_builder::ClientBuilder;
use super::counts::Counts;
use super::credentials::Credentials;
use super::error::{Error, ErrorKind, Result};
use super::exchange::{Exchange, Exchanged, NoAnswer};
use super::journal::Journal;
use super::key_status::{DoneWithoutAnswer, not_stored};
use super::prepared_request::PreparedRequest;
use super::report::{CallReport, ReplySource};
use super::request::Request;
use super::retry_config::RetryConfig;
use super::retry_decision::Sent;
use super::retry_loop::{CallEnd, CallResult, RetryContext, drive};
use super::retry_state::RetryState;
use super::server_reply::Reply;
use super::url_cache::UrlCache;

/// Sends HTTP requests whose retries cannot repeat an effect. Cheap to clone; clones share everything.
///
/// ```no_run
/// # async fn example(charge: serde_json::Value) -> Result<(), onceward_client::Error> {
/// # let url = "https://pay.example/charges";
/// # #[cfg(feature = "journal")] {
/// let client = onceward_client::Client::builder().with_journal("embedded:./outgoing").build()?;
/// client.resume().await?; // what an earlier process left
/// let answer = client.post(url).json(&charge).intent("order-7").send().await?;
/// println!("{}: {}", answer.status(), answer.report());
/// # }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<ClientInner>,
}

#[derive(Debug)]
pub(crate) struct ClientInner {
    pub(crate) shared: RetryContext,
    pub(crate) exchange: Exchange,
    pub(crate) credentials: Credentials,
    pub(crate) urls: UrlCache,
    pub(crate) request_bytes_max: usize,
    pub(crate) options: Option<JournalOptions>,
    pub(crate) journal: OnceCell<Arc<Journal>>,
}

/// Opens the store of a journal.
pub(crate) type Open = Arc<dyn Fn() -> StoreFuture<'static, Arc<dyn Store>> + Send + Sync>;

/// The settings that the journal is opened with.
pub(crate) struct JournalOptions {
    pub(crate) open: Open,
    pub(crate) name: String,
    pub(crate) keep: Retention,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) request_bytes_max: usize,
    pub(crate) answer_bytes_max: usize,
}

impl std::fmt::Debug for JournalOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalOptions").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// A builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A request with any method.
    pub fn request(&self, method: Method, url: impl AsRef<str>) -> Request {
        Request::new(self.clone(), method, url.as_ref())
    }

    /// A `POST`.
    pub fn post(&self, url: impl AsRef<str>) -> Request {
        self.request(Method::POST, url)
    }

    /// A `PATCH`.
    pub fn patch(&self, url: impl AsRef<str>) -> Request {
        self.request(Method::PATCH, url)
    }

    /// A `PUT`.
    pub fn put(&self, url: impl AsRef<str>) -> Request {
        self.request(Method::PUT, url)
    }

    /// A `DELETE`.
    pub fn delete(&self, url: impl AsRef<str>) -> Request {
        self.request(Method::DELETE, url)
    }

    /// A `GET`.
    pub fn get(&self, url: impl AsRef<str>) -> Request {
        self.request(Method::GET, url)
    }

    /// Returns the counts of this client.
    pub fn counts(&self) -> Counts {
        self.inner.shared.counters.read()
    }

    /// Waits until every answer that was returned is recorded in the journal. Call it before the process ends or
    /// the journal's folder is opened again, when no call is running. Without it no effect happens twice either:
    /// an answer that was not recorded is requested again, under the same key.
    pub async fn recorded(&self) {
        if let Some(journal) = self.inner.journal.get() {
            journal.recorded().await;
        }
    }

    pub(crate) fn config(&self) -> &RetryConfig {
        &self.inner.shared.config
    }

    pub(crate) fn request_bytes_max(&self) -> usize {
        self.inner.request_bytes_max
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.inner.options.is_some()
    }

    /// The journal, opened at its first use. A failure to open it is not cached: the folder may be free the next
    /// time.
    pub(crate) async fn journal(&self) -> Result<&Arc<Journal>> {
        let Some(options) = &self.inner.options else {
            return Err(Error::invalid("this client has no journal; build it with one"));
        };
        self.inner.journal.get_or_try_init(|| Journal::open(options)).await.map_err(Error::journal)
    }

    /// Sends without a journal.
    pub(crate) async fn send_plain(
        &self,
        prepared: &PreparedRequest,
        call_at_most: Duration,
    ) -> Result<Reply> {
        let ClientInner { shared, exchange, .. } = &*self.inner;
        let host = shared.hosts.host(prepared.authority());
        let config = RetryConfig { call_at_most, ..shared.config };
        let state = RetryState::new(config, prepared.guard(), shared.now());
        let trying = |number, at_most| exchange.try_once(prepared, number, at_most);
        finish(shared, drive(shared, &host, state, trying).await).map_err(|ended| ended.error)
    }
}

/// A call without an answer: the error, and what the journal needs to know about it.
pub(crate) struct CallFailure {
    pub(crate) error: Error,
    /// Why it stopped, if it was stopped.
    pub(crate) why: Option<super::retry_state::StopReason>,
    /// Set if the request is done and its answer cannot be returned.
    pub(crate) done: Option<DoneWithoutAnswer>,
}

/// Turns the result of the retry loop into the result for the caller.
pub(crate) fn finish(shared: &RetryContext, result: CallResult<Exchanged>) -> Result<Reply, CallFailure> {
    let CallResult { ended, mut report, was_sent } = result;
    let effect = match was_sent {
        Sent::No => Effect::None,
        Sent::Maybe => Effect::Maybe,
    };
    match ended {
        CallEnd::Finished(Ok(response)) => {
            report.read_fields(response.headers());
            if report.source == ReplySource::Replay {
                shared.counters.replays.one();
            }
            // The common case reads no body.
            if response.status().is_client_error()
                && let Some(done) = not_stored(response.headers(), response.body())
            {
                let error = done_without_answer(done).report_is(report);
                return Err(CallFailure { error, why: None, done: Some(done) });
            }
            Ok(Reply::new(response, report))
        }
        CallEnd::Finished(Err(NoAnswer::TooLarge(status))) => Err(CallFailure {
            error: too_large(status).report_is(report),
            why: None,
            done: Some(DoneWithoutAnswer { status: Some(status) }),
        }),
        CallEnd::Finished(Err(NoAnswer::NoTls)) => {
            Err(CallFailure { error: no_tls().effect_is(effect).report_is(report), why: None, done: None })
        }
        // Only without a key, when it must not be sent again.
        CallEnd::Finished(Err(NoAnswer::Lost(why))) => {
            let detail = format!("no answer, and without a key it must not be sent again: {why}");
            let error = Error::new(ErrorKind::Unknown, detail).effect_is(effect).report_is(report);
            Err(CallFailure { error, why: None, done: None })
        }
        CallEnd::Stopped(why, last) => {
            let last = last.map(|last| describe(&last));
            let error = Error::stopped(why, effect, last.as_deref()).report_is(report);
            Err(CallFailure { error, why: Some(why), done: None })
        }
    }
}

fn too_large(status: http::StatusCode) -> Error {
    let detail = format!("it was answered with {status}, but the answer is too large to return or keep");
    Error::new(ErrorKind::AnswerNotAvailable, detail).effect_is(Effect::Maybe)
}

/// The server has done it and did not keep its answer.
fn done_without_answer(done: DoneWithoutAnswer) -> Error {
    let detail = match done.status {
        Some(status) => format!("it was answered with {status}, but the server did not keep the answer"),
        None => "it is done, but the server did not keep its answer".into(),
    };
    Error::new(ErrorKind::AnswerNotAvailable, detail).effect_is(Effect::Maybe)
}

/// Every try fails with this, so there is only one.
fn no_tls() -> Error {
    Error::invalid(
        "this client has no TLS and cannot send to https: build onceward-client with its feature `rustls`, \
         or give the client a reqwest client that has TLS",
    )
}

fn describe(last: &Exchanged) -> String {
    match last {
        Ok(response) => format!("answered {}", response.status().as_u16()),
        Err(NoAnswer::TooLarge(status)) => format!("answered {}", status.as_u16()),
        Err(NoAnswer::NoTls) => no_tls().to_string(),
        Err(NoAnswer::Lost(why)) => why.clone(),
    }
}

/// An answer from the client's own journal.
pub(crate) fn from_journal(response: http::Response<bytes::Bytes>) -> Reply {
    Reply::new(Box::new(response), CallReport { source: ReplySource::Journal, ..CallReport::default() })
}
