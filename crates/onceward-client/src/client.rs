//! The client over reqwest, and how it is built.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use onceward::{Clock, Effect, Retention, Store, StoreFuture, SystemClock};
use tokio::sync::OnceCell;

use super::answer::Answer;
use super::counts::Counts;
use super::course::Course;
use super::drive::{Driven, Ended, Shared, drive};
use super::error::{Error, ErrorKind, Result};
use super::exchange::{Exchange, Exchanged, NoAnswer};
use super::journal::Journal;
use super::judge::Departed;
use super::prepared::Prepared;
use super::report::{Report, Source};
use super::request::Request;
use super::terms::Terms;
use super::urls::Urls;
use onceward_http::headers::IDEMPOTENT_REPLAYED;

/// Sends requests whose retries cannot hurt. Cheap to clone; all clones are one.
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
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Shared,
    pub(crate) exchange: Exchange,
    pub(crate) urls: Urls,
    request_bytes_max: usize,
    opening: Option<Opening>,
    journal: OnceCell<Arc<Journal>>,
}

/// Opens the store of a journal.
pub(crate) type Open = Arc<dyn Fn() -> StoreFuture<'static, Arc<dyn Store>> + Send + Sync>;

/// How the journal is to be opened.
pub(crate) struct Opening {
    pub(crate) open: Open,
    pub(crate) name: String,
    pub(crate) keep: Retention,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) request_bytes_max: usize,
    pub(crate) answer_bytes_max: usize,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// A client with something other than the defaults.
    pub fn builder() -> Builder {
        Builder {
            terms: Terms::default(),
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

    /// Waits until every answer that was handed out is recorded in the journal: before a process ends
    /// or its folder is opened again. Without that nothing is done twice either; an answer that was not
    /// recorded is asked for again, under the same key. To be called when no call is under way.
    pub async fn recorded(&self) {
        if let Some(journal) = self.inner.journal.get() {
            journal.recorded().await;
        }
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.inner.shared.terms
    }

    pub(crate) fn request_bytes_max(&self) -> usize {
        self.inner.request_bytes_max
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.inner.opening.is_some()
    }

    /// The journal, opened by the first who asks. A failure to open it is not kept: the folder may be
    /// free the next time.
    pub(crate) async fn journal(&self) -> Result<&Arc<Journal>> {
        let Some(opening) = &self.inner.opening else {
            return Err(Error::invalid("this client has no journal; build it with one"));
        };
        self.inner.journal.get_or_try_init(|| Journal::open(opening)).await.map_err(Error::journal)
    }

    /// Sends without a journal.
    pub(crate) async fn send_plain(&self, prepared: &Prepared, call_at_most: Duration) -> Result<Answer> {
        let Inner { shared, exchange, .. } = &*self.inner;
        let host = shared.hosts.host(prepared.authority());
        let terms = Terms { call_at_most, ..shared.terms };
        let course = Course::new(terms, prepared.guard(), shared.now());
        let trying = |number, at_most| exchange.try_once(prepared, number, at_most);
        conclude(shared, drive(shared, &host, course, trying).await).map_err(|ended| ended.error)
    }
}

/// A call without an answer: the error, and whether the server may have been reached for nothing.
pub(crate) struct NoEnd {
    pub(crate) error: Error,
    /// Why it stopped, if it was stopped.
    pub(crate) why: Option<super::course::Why>,
    /// The status of an answer that came but is not handed out.
    pub(crate) too_large: Option<http::StatusCode>,
}

/// Makes of a driven call what its caller gets.
pub(crate) fn conclude(shared: &Shared, driven: Driven<Exchanged>) -> Result<Answer, NoEnd> {
    let Driven { ended, mut report, departed } = driven;
    let effect = match departed {
        Departed::No => Effect::None,
        Departed::Maybe => Effect::Maybe,
    };
    match ended {
        Ended::Given(Ok(response)) => {
            if response.headers().get(IDEMPOTENT_REPLAYED).is_some_and(|value| value == "true") {
                report.source = Source::Replay;
                shared.counters.replays.one();
            }
            Ok(Answer::new(response, report))
        }
        Ended::Given(Err(NoAnswer::TooLarge(status))) => {
            Err(NoEnd { error: too_large(status).report_is(report), why: None, too_large: Some(status) })
        }
        Ended::Given(Err(NoAnswer::NoTls)) => {
            Err(NoEnd { error: no_tls().effect_is(effect).report_is(report), why: None, too_large: None })
        }
        // Only where it must not be sent again: without a key.
        Ended::Given(Err(NoAnswer::Lost(why))) => {
            let detail = format!("no answer, and without a key it must not be sent again: {why}");
            let error = Error::new(ErrorKind::Unknown, detail).effect_is(effect).report_is(report);
            Err(NoEnd { error, why: None, too_large: None })
        }
        Ended::Stopped(why, last) => {
            let last = last.map(|last| describe(&last));
            let error = Error::stopped(why, effect, last.as_deref()).report_is(report);
            Err(NoEnd { error, why: Some(why), too_large: None })
        }
    }
}

pub(crate) fn too_large(status: http::StatusCode) -> Error {
    let detail =
        format!("it was answered with {status}, but the answer is too large to be handed out or kept");
    Error::new(ErrorKind::AnswerTooLarge, detail).effect_is(Effect::Maybe)
}

/// The same in every try, so there is one only.
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

/// From our own journal.
pub(crate) fn from_journal(response: http::Response<bytes::Bytes>) -> Answer {
    Answer::new(Box::new(response), Report { source: Source::Journal, ..Report::default() })
}

/// Builds a [`Client`].
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    terms: Terms,
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
    /// Sets how often, how long and how patiently calls are made.
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Sends through this reqwest client: for TLS settings, proxies and pools of your own. Let it follow no
    /// redirects and retry nothing by itself; this client sees to both.
    pub fn http(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// Adds a field to every try of every request that has none of that name. It is never written to
    /// a journal, so credentials belong here, and what is resumed after a restart carries those of
    /// then.
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

    /// Sets the largest answer body, in bytes: 4 MiB unless set. A larger one is not handed out.
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

    /// Names the client in its journal: `client` unless set. Two applications that share a store need
    /// two names, or their intents would be one another's.
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

    /// Sets the clock that the journal dates requests with. For tests.
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
        let opening = self.open.map(|open| Opening {
            open,
            name: self.name,
            keep: self.keep,
            clock: self.clock,
            request_bytes_max: self.request_bytes_max,
            answer_bytes_max: self.answer_bytes_max,
        });
        let inner = Inner {
            shared: Shared::new(self.terms),
            exchange,
            urls: Urls::default(),
            request_bytes_max: self.request_bytes_max,
            opening,
            journal: OnceCell::new(),
        };
        Ok(Client { inner: Arc::new(inner) })
    }
}

/// The reqwest client of a client that was given none.
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
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
