//! The options of a check, the same for a test and for the command line.

mod setters;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::error::Result;
use super::message::Meaning;
use super::pattern::Pattern;
use super::report::Report;
use super::run::{self, Progress};
use super::secrets::Secrets;
use super::volley::HttpVersion;
use super::webhook::Webhook;

/// Where the number of effects is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effects {
    /// Nowhere: only answers are compared, and the verdicts are weaker for it.
    #[default]
    Unseen,
    /// A URL that answers with a number, or with JSON that has one at this pointer.
    Url {
        /// Where to ask.
        url: String,
        /// A JSON pointer (RFC 6901) such as `/count`; empty for a plain number.
        pointer: String,
    },
    /// A shell command that prints a number.
    Command(String),
    /// A query that gives a number, asked with the client of the database: `psql`, `mariadb` or `sqlite3`.
    Sql {
        /// `postgres://…`, `mysql://…` or `sqlite:FILE`.
        url: String,
        /// Such as `select count(*) from charges`.
        query: String,
    },
}

impl Effects {
    /// Read from a URL that answers with a plain number.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url { url: url.into(), pointer: String::new() }
    }
}

/// How a key is written into its field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyNotation {
    /// As a Structured Field String, which is what the IETF draft asks for.
    #[default]
    Quoted,
    /// As it is, which is what many services expect.
    Raw,
}

/// The configuration of a check. Everything but the URL has a default. [`Check::run`] and [`Check::plan`] validate it
/// before anything is sent.
///
/// ```no_run
/// # use onceward_verify::endpoint::{Check, Effects};
/// # async fn example() -> Result<(), onceward_verify::endpoint::Error> {
/// let check = Check::new("http://127.0.0.1:3000/charges")
///     .with_effects(Effects::url("http://127.0.0.1:3000/charges/count"))
///     .with_clients(20);
/// check.run().await?.assert_holds();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Check {
    /// The endpoint.
    pub url: String,
    /// `POST` by default.
    pub method: String,
    /// The body that has the effect. It need not be text.
    pub body: Bytes,
    /// Fields of every request.
    pub headers: Vec<(String, String)>,
    /// The field that carries the key.
    pub key_header: String,
    /// How the key is written there. Where it is refused so and taken in the other form, that is used.
    pub key_notation: KeyNotation,
    /// Where in the JSON of the body the key belongs, instead of in a field: a JSON pointer such as `/request_id`.
    pub key_pointer: Option<String>,
    /// The parameter of the query that carries the key, instead of a field.
    pub key_parameter: Option<String>,
    /// Fields that are new in every sending, also in those of one key: `{uuid}`, `{unix}`, `{unix_ms}` and `{count}` in
    /// their values are filled in.
    pub fresh_fields: Vec<(String, String)>,
    /// Which HTTP is spoken.
    pub version: HttpVersion,
    /// Authorities (PEM) whose certificates are believed besides those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// Requests of a volley.
    pub clients: usize,
    /// Volleys of a scenario.
    pub rounds: usize,
    /// Times that the server is killed.
    pub kills: usize,
    /// Where the number of effects is read.
    pub effects: Effects,
    /// Another valid body. Made from `body` where that is JSON, if not given.
    pub alt_body: Option<Bytes>,
    /// Pairs of fields that stand for two tenants: credentials, cookies, hosts.
    pub tenants: Vec<[(String, String); 2]>,
    /// The credential of the first tenant after it was refreshed.
    pub refreshed: Option<(String, String)>,
    /// Another endpoint of the same service that takes the same request.
    pub other_url: Option<String>,
    /// More instances of the same service.
    pub also_urls: Vec<String>,
    /// Starts the service; it is killed and started again.
    pub start_command: Option<String>,
    /// Where what is started listens, if that is not the endpoint: a service behind a gateway, or a store.
    pub start_url: Option<String>,
    /// Run after each start. It prints header fields, one per line, for all requests after that: a login.
    pub ready_command: Option<String>,
    /// A resource with an `ETag` that is changed with `PUT` and `If-Match`.
    pub versioned_url: Option<String>,
    /// The body of the update.
    pub versioned_body: Option<Bytes>,
    /// An endpoint for signed events.
    pub webhook: Option<Webhook>,
    /// Fields that make the endpoint fail before its effect, each in another way.
    pub fail_headers: Vec<(String, String)>,
    /// Fields that make the endpoint fail after its effect, each in another way. `{status}` in a value stands for each
    /// status that is tried.
    pub fail_after_effect_headers: Vec<(String, String)>,
    /// A field that makes the request take longer than the lease.
    pub slow_header: Option<(String, String)>,
    /// How long a key may stay unavailable after a crash, or while a request is still running.
    pub lease: Duration,
    /// How long an answer is promised to be kept.
    pub retention: Option<Duration>,
    /// Whether a 5xx is a final answer that is replayed, as with Stripe.
    pub failures_are_final: bool,
    /// Fields of an answer that may change between a run and its replay.
    pub volatile_fields: Vec<String>,
    /// Answers that say "not now", besides 409, 423, 425, 429 and 503.
    pub not_now: Vec<Pattern>,
    /// Answers that refuse a request, besides 4xx.
    pub refused: Vec<Pattern>,
    /// Answers that are failures, besides 5xx.
    pub failed: Vec<Pattern>,
    /// Answers that say that the outcome is unknown and an operator has to settle it, besides the 409 of RFC 9457 with
    /// `"retryable": false`.
    pub held: Vec<Pattern>,
    /// Names of scenarios; all if empty.
    pub scenarios: Vec<String>,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Decides every choice that is left to chance. Keys are new in each run all the same.
    pub seed: u64,
    /// Confirms that a host that is not local is the user's own.
    pub own_host: bool,
}

impl Check {
    /// A check of this endpoint, with the defaults of the command line.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            method: "POST".to_owned(),
            body: Bytes::from_static(b"{}"),
            headers: Vec::new(),
            key_header: "Idempotency-Key".to_owned(),
            key_notation: KeyNotation::default(),
            key_pointer: None,
            key_parameter: None,
            fresh_fields: Vec::new(),
            version: HttpVersion::default(),
            authorities: None,
            clients: 100,
            rounds: 20,
            kills: 10,
            effects: Effects::Unseen,
            alt_body: None,
            tenants: Vec::new(),
            refreshed: None,
            other_url: None,
            also_urls: Vec::new(),
            start_command: None,
            start_url: None,
            ready_command: None,
            versioned_url: None,
            versioned_body: None,
            webhook: None,
            fail_headers: Vec::new(),
            fail_after_effect_headers: Vec::new(),
            slow_header: None,
            lease: Duration::from_secs(30),
            retention: None,
            failures_are_final: false,
            volatile_fields: Vec::new(),
            not_now: Vec::new(),
            refused: Vec::new(),
            failed: Vec::new(),
            held: Vec::new(),
            scenarios: Vec::new(),
            timeout: Duration::from_secs(60),
            seed: 0,
            own_host: false,
        }
    }

    /// Checks the endpoint. Fails only if the endpoint could not be checked at all.
    ///
    /// Dropping the future hangs up on what is running and kills what was started.
    pub async fn run(&self) -> Result<Report> {
        run::run(self, &|_| {}).await
    }

    /// The same, and tells how it is going.
    pub async fn run_with(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report> {
        run::run(self, progress).await
    }

    /// Returns the plan, with the most requests that each part sends. Sends nothing.
    pub fn plan(&self) -> Result<Vec<run::Planned>> {
        run::plan(self)
    }

    /// The URL without its passwords and tokens, as reports name it.
    pub fn concealed_url(&self) -> String {
        let mut url = self.url.clone();
        Secrets::of(self).conceal(&mut url);
        url
    }

    /// What an answer means to this endpoint.
    pub(super) fn meaning(&self, status: u16, body: &[u8]) -> Meaning {
        let is_any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.fits(status, body));
        if is_any(&self.held) {
            Meaning::Held
        } else if is_any(&self.not_now) {
            Meaning::NotNow
        } else if is_any(&self.failed) {
            Meaning::Failed
        } else if is_any(&self.refused) {
            Meaning::Refused
        } else {
            Meaning::Usual
        }
    }
}

/// As the command line reads it.
pub(super) fn written(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

#[cfg(test)]
#[path = "check_test.rs"]
mod tests;
