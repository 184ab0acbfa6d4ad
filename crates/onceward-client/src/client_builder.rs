//! The settings of a client. Setters take any value; [`ClientBuilder::build`] checks all of them.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use onceward::{Clock, Id, Policy, Retention, Store, SystemClock};
use tokio::sync::OnceCell;

use super::client::{Client, ClientInner, JournalOptions, Open};
use super::credentials::Credentials;
use super::error::{Error, Result};
use super::exchange::Exchange;
use super::journal::OPERATION;
use super::request::CLIENT_HEADERS;
use super::retry_config::RetryConfig;
use super::retry_loop::RetryContext;
use super::url_cache::UrlCache;

/// Builds a [`Client`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    config: RetryConfig,
    http: Option<reqwest::Client>,
    headers: HeaderMap,
    credential_names: Vec<HeaderName>,
    request_bytes_max: usize,
    answer_bytes_max: usize,
    open: Option<Open>,
    journal_name: String,
    retention: Retention,
    clock: Arc<dyn Clock>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            config: RetryConfig::default(),
            http: None,
            headers: HeaderMap::new(),
            credential_names: Vec::new(),
            request_bytes_max: 1 << 20,
            answer_bytes_max: 4 << 20,
            open: None,
            journal_name: "client".into(),
            retention: Retention::Forever,
            clock: Arc::new(SystemClock),
        }
    }
}

impl ClientBuilder {
    /// Sets the limits of all calls: number of tries, timeouts, backoff, budget and breaker.
    pub fn with_retry_config(mut self, config: RetryConfig) -> Self {
        self.config = config;
        self
    }

    /// Sends through this reqwest client: for your own TLS settings, proxies and pools. Configure it
    /// to follow no redirects and to retry nothing.
    pub fn with_http(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// Adds a header field to every try of every request that has none of that name. It is never written to a
    /// journal, so credentials belong here. A request that is resumed after a restart carries the fields of the
    /// client that resumes it; without the credentials that it was sent with before, it is not resumed.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Adds a name to those that are credentials ([`is_credential`](super::is_credential)): a field of that name is
    /// never written to a journal. A value that is marked as sensitive is a credential under any name.
    pub fn with_credential_name(mut self, name: HeaderName) -> Self {
        self.credential_names.push(name);
        self
    }

    /// Sets the largest request body, in bytes: 1 MiB unless set. It is held in memory until the call
    /// ends, and written to the journal.
    pub fn with_request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Sets the largest answer body, in bytes: 4 MiB unless set. A larger one is not returned.
    pub fn with_answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// Keeps a journal in this store, which must be durable.
    pub fn with_journal_store(self, store: Arc<dyn Store>) -> Self {
        self.with_journal_opener(Arc::new(move || {
            let store = store.clone();
            Box::pin(async move { Ok(store) })
        }))
    }

    pub(crate) fn with_journal_opener(mut self, open: Open) -> Self {
        self.open = Some(open);
        self
    }

    /// Names the client in its journal: `client` unless set. Applications that share a store need
    /// different names, because intents of the same name are the same.
    pub fn with_journal_name(mut self, name: impl Into<String>) -> Self {
        self.journal_name = name.into();
        self
    }

    /// Sets how long the journal keeps an answer: forever, unless set. An intent that is sent again
    /// after that is a new one.
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the clock that the journal reads. For tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Checks everything and builds the client. The journal is opened at its first use, which [`Client::resume`]
    /// usually is.
    pub fn build(self) -> Result<Client> {
        self.config.check()?;
        if let Some(name) = CLIENT_HEADERS.iter().find(|name| self.headers.contains_key(*name)) {
            return Err(Error::invalid(format!("{name} is written by the client; see Request::key")));
        }
        Id::new(&self.journal_name, OPERATION, "intent")
            .map_err(|error| Error::invalid("the journal's name cannot be used").caused_by(error))?;
        Policy::http()
            .to_builder()
            .with_retention(self.retention)
            .build()
            .map_err(|error| Error::invalid("answers cannot be kept for that long").caused_by(error))?;
        let http = match self.http {
            Some(http) => http,
            None => own_http()?,
        };
        let credentials = Credentials::new(self.credential_names, &self.headers);
        let exchange = Exchange { http, headers: self.headers, answer_bytes_max: self.answer_bytes_max };
        let options = self.open.map(|open| JournalOptions {
            open,
            name: self.journal_name,
            keep: self.retention,
            clock: self.clock,
            request_bytes_max: self.request_bytes_max,
            answer_bytes_max: self.answer_bytes_max,
        });
        let inner = ClientInner {
            shared: RetryContext::new(self.config),
            exchange,
            credentials,
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

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("journal_name", &self.journal_name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "client_builder_test.rs"]
mod tests;
