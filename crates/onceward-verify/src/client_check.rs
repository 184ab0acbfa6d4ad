//! The verifier of clients: runs a client against a flaky server of its own, and judges what the client sent.
//!
//! ```text
//!  ClientCheck ──▶ scenario ──▶ client_process (the command, killed as a group)
//!                     │               │ requests
//!                     │               ▼
//!                     │          flaky_server: a script of answers and faults for each run
//!                     ▼               │
//!                  Finding ◀── judge ◀┘ tries: when, which key, which bytes
//! ```

mod client_process;
mod flaky_server;
mod http_try;
mod judge;
mod pauses;
mod scenarios;

use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime};

use crate::endpoint::report::{Report, Spread};
use crate::endpoint::{Error, Result};
use flaky_server::FlakyServer;
use scenarios::ClientContext;
pub use scenarios::{ClientScenario, all as scenarios};

/// The environment variable with the URL that the client has to call.
pub const URL_VARIABLE: &str = "ONCEWARD_URL";
/// The environment variable with the name of what the client has to do: the same name is the same intent.
pub const INTENT_VARIABLE: &str = "ONCEWARD_INTENT";

/// Which client to check, and how long it may take.
///
/// The command is run by a shell, once for each intent, and has to send one request that is safe to retry. `{url}` and
/// `{intent}` in it, and the variables [`URL_VARIABLE`] and [`INTENT_VARIABLE`], say where and what.
///
/// ```no_run
/// # use onceward_verify::client_check::ClientCheck;
/// # async fn example() -> Result<(), onceward_verify::endpoint::Error> {
/// ClientCheck::new("node pay.js").run().await?.assert_holds();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientCheck {
    /// The command.
    pub command: String,
    /// The field that carries the key.
    pub key_header: String,
    /// Where in the JSON of the body the key is, instead of in a field.
    pub key_pointer: Option<String>,
    /// Names of scenarios; all if empty.
    pub scenarios: Vec<String>,
    /// How long a run of the command may take before it is killed.
    pub run_within: Duration,
    /// How often one run may try.
    pub tries_max: usize,
}

impl ClientCheck {
    /// A check of this command, with the defaults of the command line.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            key_header: "Idempotency-Key".to_owned(),
            key_pointer: None,
            scenarios: Vec::new(),
            run_within: Duration::from_secs(60),
            tries_max: 20,
        }
    }

    /// Sets the field that carries the key, `Idempotency-Key` by default.
    pub fn with_key_header(mut self, name: impl Into<String>) -> Self {
        self.key_header = name.into();
        self
    }

    /// Sets where in the JSON of the body the key is, instead of in a field: a JSON pointer.
    pub fn with_key_pointer(mut self, pointer: impl Into<Option<String>>) -> Self {
        self.key_pointer = pointer.into();
        self
    }

    /// Sets the names of the scenarios; all if there are none.
    pub fn with_scenarios(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.scenarios = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a run of the command may take before it is killed, one minute by default.
    pub fn with_run_within(mut self, run_within: Duration) -> Self {
        self.run_within = run_within;
        self
    }

    /// Sets how often one run may try, 20 times by default.
    pub fn with_tries_max(mut self, tries: usize) -> Self {
        self.tries_max = tries;
        self
    }

    /// Checks the client. Fails only if it could not be checked at all.
    ///
    /// Dropping the future kills what was started.
    pub async fn run(&self) -> Result<Report> {
        self.run_all().await.map_err(|error| {
            let mut text = error.to_string();
            // It may quote what the command wrote.
            crate::endpoint::conceal_command_in(&mut text, &self.command);
            Error::new(error.kind(), text)
        })
    }

    async fn run_all(&self) -> Result<Report> {
        let (start, started) = (Instant::now(), SystemTime::now());
        let chosen = scenarios::named(&self.scenarios)?;
        let server = FlakyServer::new().map_err(|error| Error::invalid(error.to_string()))?;
        let (mut findings, mut causes) = (Vec::new(), Vec::new());
        let mut context = ClientContext::new(self, &server);
        scenarios::baseline(&mut context).await?;
        for scenario in chosen {
            let (finding, its) = scenarios::play(scenario, &mut context).await;
            findings.push(finding);
            causes.push(its);
        }
        crate::endpoint::attribute(&mut findings, &causes);
        let mut report = Report {
            url: self.command.clone(),
            method: "client".to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            run: server.run_name(),
            seed: 0,
            started_unix_s: started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            took_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            requests: findings.iter().map(|finding| finding.requests).sum(),
            clients: 1,
            effects_seen: true,
            request_took_us: 0,
            key_form: match &self.key_pointer {
                Some(pointer) => format!("in the body, at {pointer}"),
                None => format!("in {}", self.key_header),
            },
            deduplicates: true,
            spread: Spread::default(),
            findings,
        };
        crate::endpoint::conceal_command(&mut report, &self.command);
        Ok(report)
    }

    /// The command line that does one scenario of this again.
    pub fn command_line(&self, scenario: &str) -> String {
        let standard = Self::new("");
        let quoted = crate::endpoint::quote;
        let mut line = format!("onceward verify --client-cmd {}", quoted(&self.command));
        if self.key_header != standard.key_header {
            let _ = write!(line, " --key-header {}", quoted(&self.key_header));
        }
        if let Some(pointer) = &self.key_pointer {
            let _ = write!(line, " --key-pointer {}", quoted(pointer));
        }
        if self.run_within != standard.run_within {
            let _ = write!(line, " --timeout {}ms", self.run_within.as_millis());
        }
        line + &format!(" --scenario {scenario}")
    }
}
