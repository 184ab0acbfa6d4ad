//! The options of a check, the same for a test and for the command line.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::error::Result;
use super::message::Meaning;
use super::report::Report;
use super::run::{self, Progress};
use super::volley::Version;

/// Where the number of effects is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl Effects {
    /// Read from a URL that answers with a plain number.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url { url: url.into(), pointer: String::new() }
    }
}

/// How a key is written into its field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// As a Structured Field String, which is what the IETF draft asks for.
    #[default]
    Quoted,
    /// As it is, which is what many services expect.
    Raw,
}

/// What to check, and with how many requests. Everything but the URL has a default:
///
/// ```no_run
/// # use onceward_verify::endpoint::{Check, Effects};
/// # async fn example() -> Result<(), onceward_verify::endpoint::Error> {
/// let mut check = Check::new("http://127.0.0.1:3000/charges");
/// check.effects = Effects::url("http://127.0.0.1:3000/charges/count");
/// check.run().await?.assert_holds();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Check {
    /// The endpoint.
    pub url: String,
    /// `POST` by default.
    pub method: String,
    /// The body that has the effect.
    pub body: String,
    /// Fields of every request.
    pub headers: Vec<(String, String)>,
    /// The field that carries the key.
    pub key_header: String,
    /// How the key is written there.
    pub key_form: KeyForm,
    /// Which HTTP is spoken.
    pub version: Version,
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
    pub alt_body: Option<String>,
    /// Two fields that stand for two tenants.
    pub tenants: Option<[(String, String); 2]>,
    /// Another endpoint of the same service that takes the same request.
    pub other_url: Option<String>,
    /// More instances of the same service.
    pub also_urls: Vec<String>,
    /// Starts the service; it is killed and started again.
    pub start_command: Option<String>,
    /// A field that makes the endpoint fail with a 5xx before its effect.
    pub fail_header: Option<(String, String)>,
    /// A field that makes the endpoint fail after its effect. `{status}` in its value stands for each status that is
    /// tried.
    pub fail_after_effect_header: Option<(String, String)>,
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
    /// Statuses that say "not now", besides 409, 423, 425, 429 and 503.
    pub not_now: Vec<u16>,
    /// Statuses that refuse a request, besides 4xx.
    pub refused: Vec<u16>,
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
            body: "{}".to_owned(),
            headers: Vec::new(),
            key_header: "Idempotency-Key".to_owned(),
            key_form: KeyForm::default(),
            version: Version::default(),
            authorities: None,
            clients: 100,
            rounds: 20,
            kills: 10,
            effects: Effects::Unseen,
            alt_body: None,
            tenants: None,
            other_url: None,
            also_urls: Vec::new(),
            start_command: None,
            fail_header: None,
            fail_after_effect_header: None,
            slow_header: None,
            lease: Duration::from_secs(30),
            retention: None,
            failures_are_final: false,
            volatile_fields: Vec::new(),
            not_now: Vec::new(),
            refused: Vec::new(),
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

    /// What would be done, and how many requests it takes at most. Sends nothing.
    pub fn plan(&self) -> Result<Vec<run::Planned>> {
        run::plan(self)
    }

    /// What a status means to this endpoint.
    pub(super) fn meaning(&self, status: u16) -> Meaning {
        if self.not_now.contains(&status) {
            Meaning::NotNow
        } else if self.refused.contains(&status) {
            Meaning::Refused
        } else {
            Meaning::Usual
        }
    }

    /// The command line that does one scenario of this again.
    pub fn command_line(&self, scenario: &str) -> String {
        let standard = Self::new("");
        let mut line = CommandLine(String::from("onceward verify"));
        line.option("url", &without_password(&self.url));
        line.unless(self.method == standard.method, "method", &self.method);
        line.unless(self.body == standard.body, "body", &self.body);
        for (name, value) in &self.headers {
            let _ = write!(line.0, " --header {}", printed_field(name, value, ""));
        }
        line.unless(self.key_header == standard.key_header, "key-header", &self.key_header);
        line.flag(self.key_form == KeyForm::Raw, "raw-key");
        line.flag(self.version == Version::Http2, "http2");
        line.given("ca", self.authorities.as_ref().map(|path| path.display().to_string()).as_ref());
        line.unless(self.clients == standard.clients, "clients", &self.clients.to_string());
        line.unless(self.rounds == standard.rounds, "rounds", &self.rounds.to_string());
        line.unless(self.kills == standard.kills, "kills", &self.kills.to_string());
        match &self.effects {
            Effects::Unseen => {}
            Effects::Url { url, pointer } => {
                line.option("effects-url", url);
                line.unless(pointer.is_empty(), "effects-pointer", pointer);
            }
            Effects::Command(command) => line.option("effects-cmd", command),
        }
        line.given("alt-body", self.alt_body.as_ref());
        if let Some(tenants) = &self.tenants {
            let [a, b] = tenants;
            let (a, b) = (printed_field(&a.0, &a.1, "_A"), printed_field(&b.0, &b.1, "_B"));
            let _ = write!(line.0, " --tenant-header {a} {b}");
        }
        line.given("other-url", self.other_url.as_ref());
        self.also_urls.iter().for_each(|url| line.option("also-url", url));
        line.given("start-cmd", self.start_command.as_ref());
        let field = |(name, value): &(String, String)| format!("{name}: {value}");
        line.given("fail-header", self.fail_header.as_ref().map(field).as_ref());
        let after = self.fail_after_effect_header.as_ref().map(field);
        line.given("fail-after-effect-header", after.as_ref());
        line.given("slow-header", self.slow_header.as_ref().map(field).as_ref());
        line.unless(self.lease == standard.lease, "lease", &written(self.lease));
        line.given("retention", self.retention.map(written).as_ref());
        line.flag(self.failures_are_final, "failures-are-final");
        self.volatile_fields.iter().for_each(|name| line.option("volatile-field", name));
        self.not_now.iter().for_each(|status| line.option("not-now", &status.to_string()));
        self.refused.iter().for_each(|status| line.option("refused", &status.to_string()));
        line.unless(self.timeout == standard.timeout, "timeout", &written(self.timeout));
        line.flag(self.own_host, "i-own-this-host");
        line.option("scenario", scenario);
        line.option("seed", &self.seed.to_string());
        line.0
    }
}

/// Parts of the names of header fields that are credentials.
const CREDENTIALS: [&str; 12] = [
    "auth",
    "cookie",
    "key",
    "token",
    "secret",
    "passw",
    "credential",
    "session",
    "signature",
    "dpop",
    "jwt",
    "otp",
];

/// A header field for a command line. A report is kept in logs and build artifacts, so instead of the value of a
/// credential it has a shell variable, named by the field.
fn printed_field(name: &str, value: &str, suffix: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if !CREDENTIALS.iter().any(|part| lower.contains(part)) {
        return quote(&format!("{name}: {value}"));
    }
    let variable: String = lower
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("\"{name}: ${variable}{suffix}\"")
}

/// A URL without the password in it.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    match authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':')) {
        Some((user, password)) => format!("{scheme}://{user}:…{}", &rest[user.len() + 1 + password.len()..]),
        None => url.to_owned(),
    }
}

/// Builds a command line.
struct CommandLine(String);

impl CommandLine {
    fn option(&mut self, name: &str, value: &str) {
        let _ = write!(self.0, " --{name} {}", quote(value));
    }

    fn unless(&mut self, standard: bool, name: &str, value: &str) {
        if !standard {
            self.option(name, value);
        }
    }

    fn given(&mut self, name: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.option(name, value);
        }
    }

    fn flag(&mut self, is_set: bool, name: &str) {
        if is_set {
            let _ = write!(self.0, " --{name}");
        }
    }
}

/// For a shell.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
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
