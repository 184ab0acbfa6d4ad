//! The HTTP client over reqwest, and its builder.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onceward::{Clock, Effect, Retention, Store, StoreFuture, SystemClock};
use tokio::sync::OnceCell;

use super::answer::Answer;
use super::counts::Counts;
use super::error::{Error, ErrorKind, Result};
use super::exchange::{Exchange, Exchanged, NoAnswer};
use super::journal::Journal;
use super::prepared_request::PreparedRequest;
use super::report::{Report, Source};
use super::request::Request;
use super::retry_config::RetryConfig;
use super::retry_decision::Departed;
use super::retry_loop::{CallEnd, CallResult, RetryContext, drive};
use super::retry_state::RetryState;
use super::url_cache::UrlCache;
use onceward_http::headers::IDEMPOTENT_REPLAYED;

/// Sends HTTP requests whose retries cannot repeat an effect. Cheap to clone; clones share everything.
///
/// ```no_run
/// # async fn example(charge: serde_json::Value) -> Result<(), onceward_client::Error> {
/// # let url = "https://pay.example/charges";
/// # #[cfg(feature = "journal")] {
/// let client = onceward_client::Client::builder().journal("embedded:./outgoing").build()?;
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
    pub(crate) urls: UrlCache,
    request_bytes_max: usize,
    options: Option<JournalOptions>,
    journal: OnceCell<Arc<Journal>>,
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
    pub fn builder() -> Builder {
        Builder {
            config: RetryConfig::default(),
            http: None,
            headers: HeaderMap::new(),
            request_bytes_max: 1 << 20,
            answer_bytes_max: 4 << 20,
            open: None,
            name: "client".into(),
            keep: Retention::Forever,
            clock: Arc::new(SystemClock),
        }
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

    /// What this client has done so far.
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
    ) -> Result<Answer> {
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
    pub(crate) why: Option<super::retry_state::Why>,
    /// The status of an answer that arrived but is too large to return.
    pub(crate) too_large: Option<http::StatusCode>,
}

/// Turns the result of the retry loop into the result for the caller.
pub(crate) fn finish(shared: &RetryContext, result: CallResult<Exchanged>) -> Result<Answer, CallFailure> {
    let CallResult { ended, mut report, departed } = result;
    let effect = match departed {
        Departed::No => Effect::None,
        Departed::Maybe => Effect::Maybe,
    };
    match ended {
        CallEnd::Given(Ok(response)) => {
            if response.headers().get(IDEMPOTENT_REPLAYED).is_some_and(|value| value == "true") {
                report.source = Source::Replay;
                shared.counters.replays.one();
            }
            Ok(Answer::new(response, report))
        }
        CallEnd::Given(Err(NoAnswer::TooLarge(status))) => Err(CallFailure {
            error: too_large(status).report_is(report),
            why: None,
            too_large: Some(status),
        }),
        CallEnd::Given(Err(NoAnswer::NoTls)) => Err(CallFailure {
            error: no_tls().effect_is(effect).report_is(report),
            why: None,
            too_large: None,
        }),
        // Only without a key, when it must not be sent again.
        CallEnd::Given(Err(NoAnswer::Lost(why))) => {
            let detail = format!("no answer, and without a key it must not be sent again: {why}");
            let error = Error::new(ErrorKind::Unknown, detail).effect_is(effect).report_is(report);
            Err(CallFailure { error, why: None, too_large: None })
        }
        CallEnd::Stopped(why, last) => {
            let last = last.map(|last| describe(&last));
            let error = Error::stopped(why, effect, last.as_deref()).report_is(report);
            Err(CallFailure { error, why: Some(why), too_large: None })
        }
    }
}

pub(crate) fn too_large(status: http::StatusCode) -> Error {
    let detail = format!("it was answered with {status}, but the answer is too large to return or keep");
    Error::new(ErrorKind::AnswerTooLarge, detail).effect_is(Effect::Maybe)
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
pub(crate) fn from_journal(response: http::Response<bytes::Bytes>) -> Answer {
    Answer::new(Box::new(response), Report { source: Source::Journal, ..Report::default() })
}

/// Builds a [`Client`].
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    config: RetryConfig,
    http: Option<reqwest::Client>,
    headers: HeaderMap,
    request_bytes_max: usize,
    answer_bytes_max: usize,
    open: Option<Open>,
    name: String,
    keep: Retention,
    clock: Arc<dyn Clock>,
}

impl Builder {
    /// Sets the limits of all calls: number of tries, timeouts, backoff, budget and breaker.
    pub fn terms(mut self, config: RetryConfig) -> Self {
        self.config = config;
        self
    }

    /// Sends through this reqwest client: for your own TLS settings, proxies and pools. Configure it
    /// to follow no redirects and to retry nothing.
    pub fn http(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// Adds a header field to every try of every request that has none of that name. It is never written to a
    /// journal, so credentials belong here. A request that is resumed after a restart carries the fields of the
    /// client that resumes it.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Sets the largest request body, in bytes: 1 MiB unless set. It is held in memory until the call
    /// ends, and written to the journal.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Sets the largest answer body, in bytes: 4 MiB unless set. A larger one is not returned.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// Keeps a journal in this store, which must be durable.
    pub fn journal_in(self, store: Arc<dyn Store>) -> Self {
        self.journal_with(Arc::new(move || {
            let store = store.clone();
            Box::pin(async move { Ok(store) })
        }))
    }

    pub(crate) fn journal_with(mut self, open: Open) -> Self {
        self.open = Some(open);
        self
    }

    /// Names the client in its journal: `client` unless set. Applications that share a store need
    /// different names, because intents of the same name are the same.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how long the journal keeps an answer: forever, unless set. An intent that is sent again
    /// after that is a new one.
    pub fn keep(mut self, retention: Retention) -> Self {
        self.keep = retention;
        self
    }

    /// Sets the clock that the journal reads. For tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds it. The journal is opened at its first use, which [`Client::resume`] usually is.
    pub fn build(self) -> Result<Client> {
        let http = match self.http {
            Some(http) => http,
            None => own_http()?,
        };
        let exchange = Exchange { http, headers: self.headers, answer_bytes_max: self.answer_bytes_max };
        let options = self.open.map(|open| JournalOptions {
            open,
            name: self.name,
            keep: self.keep,
            clock: self.clock,
            request_bytes_max: self.request_bytes_max,
            answer_bytes_max: self.answer_bytes_max,
        });
        let inner = ClientInner {
            shared: RetryContext::new(self.config),
            exchange,
            urls: UrlCache::default(),
            request_bytes_max: self.request_bytes_max,
            options,
            journal: OnceCell::new(),
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

/// The default reqwest client.
fn own_http() -> Result<reqwest::Client> {
    let builder =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).retry(reqwest::retry::never());
    #[cfg(feature = "rustls")]
    let builder = builder.tls_backend_preconfigured(super::tls::config());
    builder.build().map_err(|error| Error::invalid("the HTTP client cannot be built").caused_by(error))
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("terms", &self.config)
            .finish_non_exhaustive()
    }
}
