//! `onceward send`: sends one request from a shell or a cron job, safe to run again.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use onceward_client::{Answer, Client, Error, ErrorKind, RetryConfig, Settlement};

use crate::output::or_end;

/// Shown below the options.
const AFTER_HELP: &str = "\
With a journal and the name of an intent, running the same command again is always safe: an intent that
was answered prints its recorded answer and sends nothing; one that was not is sent again with the same
key and the same bytes. The same name with another request is refused.

Examples:
  onceward send --url http://127.0.0.1:8080/charges --body '{\"amount\":7}'
  onceward send --url https://pay.example/charges --body @charge.json \\
      --journal ~/.outgoing --intent order-7

Retried: no answer, 408, 425, 429 and 5xx, with growing pauses and no longer than --at-most. Credentials
(Authorization, Proxy-Authorization, Cookie) are never written to the journal; give them again with
--resume.

An unknown intent is not sent again until a person has checked the service and settles it:

  onceward send --settle done --status 201 --body @charge-1.json --journal ~/.outgoing --intent order-7
  onceward send --settle not-done --journal ~/.outgoing --intent order-7

Exit code:
  0  answered with 2xx or 3xx; the body is on standard output (or: settled)
  1  answered with 4xx or 5xx, and that is final; the body is on standard output
  2  nothing was sent: the command, the journal or the intent's name cannot be used
  3  given up for now; run it again, or --resume
  4  unknown: it may or may not have taken effect; it is not sent again until it is settled
  5  it took effect, but its answer is too large to print";

/// Send one request that is safe to send again: from a shell, a script or a cron job.
///
/// Adds an Idempotency-Key, retries with growing pauses, and remembers the request and its response in a journal.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Where to send it.
    #[arg(long, value_parser = crate::address::url(), required_unless_present_any = ["resume", "settle"], conflicts_with_all = ["resume", "settle"])]
    url: Option<String>,

    /// The method.
    #[arg(long, default_value = "POST", conflicts_with_all = ["resume", "settle"])]
    method: Method,

    /// The body: text, @FILE, or @- for standard input. JSON is sent as such unless a header says
    /// otherwise.
    #[arg(long, value_name = "TEXT", conflicts_with = "resume")]
    body: Option<String>,

    /// A header field, as in 'Authorization: Bearer …'; @FILE reads one per line, which keeps secrets
    /// out of the list of processes. May be given several times.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    headers: Vec<String>,

    /// The name of the intent in the journal.
    #[arg(long, value_name = "NAME", requires = "journal", conflicts_with = "resume")]
    intent: Option<String>,

    /// The key to send; a random one unless given.
    #[arg(long, conflicts_with_all = ["resume", "settle"])]
    key: Option<String>,

    /// The folder in which requests, keys and answers are kept.
    #[arg(long, value_name = "DIR", env = "ONCEWARD_JOURNAL")]
    journal: Option<PathBuf>,

    /// Send every unfinished intent in the journal; prints one line for each.
    #[arg(long, requires = "journal")]
    resume: bool,

    /// Settle an unknown intent. Check the service first; this is not verified. done: it happened, and every
    /// later run gets the answer given by --status, --header and --body. not-done: it did not happen, and the
    /// next run sends it again.
    #[arg(long, value_enum, value_name = "FOUND", requires = "intent", conflicts_with = "resume")]
    settle: Option<SettleAs>,

    /// The status of that answer.
    #[arg(long, value_name = "CODE", requires = "settle")]
    status: Option<StatusCode>,

    /// Do not ask for confirmation.
    #[arg(long, requires = "settle")]
    yes: bool,

    /// How long to keep trying.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    at_most: u64,

    /// Print the status and the header fields in front of the body.
    #[arg(long, short)]
    include: bool,

    /// Print a report on standard error.
    #[arg(long, short)]
    verbose: bool,
}

/// How an unknown intent is settled.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SettleAs {
    Done,
    NotDone,
}

/// The exit codes, as documented in the help.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Exit {
    Answered = 0,
    Refused = 1,
    NotSent = 2,
    GivenUp = 3,
    Unknown = 4,
    TooLarge = 5,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        let ended = match self.settle {
            Some(settle_as) => self.settle(settle_as).await,
            None if self.resume => self.resume().await,
            None => self.send().await,
        };
        let exit = ended.unwrap_or_else(|why| {
            eprintln!("onceward: {why}");
            Exit::NotSent
        });
        ExitCode::from(exit as u8)
    }

    async fn send(&self) -> Result<Exit, String> {
        let (client, fields) = self.client()?;
        let mut request = client.request(self.method.clone(), self.url.as_deref().unwrap_or_default());
        let body = self.body.as_deref().map(read).transpose()?.unwrap_or_default();
        let typed = fields.iter().any(|(name, _)| name == CONTENT_TYPE);
        if !typed && !body.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() {
            request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in fields {
            request = request.header(name, value);
        }
        if let Some(intent) = &self.intent {
            request = request.intent(intent);
        }
        if let Some(key) = &self.key {
            request = request.key(key);
        }
        match request.body(body).send().await {
            Ok(answer) => {
                if self.verbose {
                    eprintln!("onceward: {}: {}", answer.status(), answer.report());
                }
                let printed = print(&answer, self.include);
                // Waits until the answer is in the journal, for the next run.
                client.recorded().await;
                or_end(printed).map_err(|error| format!("cannot print the answer: {error}"))?;
                Ok(exit_of(&answer))
            }
            Err(error) => {
                eprintln!("onceward: {error}");
                Ok(exit_of_error(&error))
            }
        }
    }

    async fn resume(&self) -> Result<Exit, String> {
        let (client, fields) = self.client()?;
        if let Some((name, _)) = fields.first() {
            return Err(format!("{name} belongs to a request; only credentials can be given with --resume"));
        }
        let mut worst = Exit::Answered;
        let resumed = client.resume_each(|resumed| {
            let (exit, line) = match &resumed.result {
                Ok(answer) => (exit_of(answer), answer.status().as_u16().to_string()),
                Err(error) => (exit_of_error(error), error.to_string()),
            };
            println!("{}\t{line}", resumed.intent);
            worst = worst.max(exit);
        });
        resumed.await.map_err(|error| error.to_string())?;
        Ok(worst)
    }

    async fn settle(&self, settle_as: SettleAs) -> Result<Exit, String> {
        let intent = self.intent.as_deref().unwrap_or_default();
        let (client, fields) = self.client()?;
        let (settlement, question) = match (settle_as, self.status) {
            (SettleAs::Done, Some(status)) => {
                let body = self.body.as_deref().map(read).transpose()?.unwrap_or_default();
                let mut answer = http::Response::new(body.into());
                *answer.status_mut() = status;
                answer.headers_mut().extend(fields);
                let question =
                    "It happened, and every later run gets the answer that you give. Settle it as done?";
                (Settlement::Done(answer), question)
            }
            (SettleAs::Done, None) => {
                return Err("--settle done needs --status, the status of the answer for later runs".into());
            }
            (SettleAs::NotDone, None) if self.body.is_none() && fields.is_empty() => (
                Settlement::NotDone,
                "It did NOT happen, and the next run sends it again. Settle it as not done?",
            ),
            (SettleAs::NotDone, _) => {
                return Err("--settle not-done takes no answer: remove --status, --header and --body".into());
            }
        };
        if !self.yes {
            crate::receipts::confirm(question)?;
        }
        client.settle(intent, settlement).await.map_err(|error| error.to_string())?;
        Ok(Exit::Answered)
    }

    /// The client, and the fields that belong to the request.
    fn client(&self) -> Result<(Client, Vec<(HeaderName, HeaderValue)>), String> {
        let terms = RetryConfig { call_at_most: Duration::from_secs(self.at_most), ..RetryConfig::default() };
        let mut builder = Client::builder().terms(terms).name("send");
        if let Some(folder) = &self.journal {
            let folder = folder.to_str().ok_or("the journal's folder is not UTF-8")?;
            builder = builder.journal(format!("embedded:{folder}"));
        }
        let mut fields = Vec::new();
        for (name, value) in fields_of(&self.headers)? {
            if [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(&name) {
                builder = builder.header(name, value);
            } else {
                fields.push((name, value));
            }
        }
        Ok((builder.build().map_err(|error| error.to_string())?, fields))
    }
}

/// The text, the content of the file after `@`, or standard input for `@-`.
fn read(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|error| format!("standard input: {error}"))?;
            Ok(bytes)
        }
        Some(path) => std::fs::read(Path::new(path)).map_err(|error| format!("{path}: {error}")),
    }
}

fn fields_of(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut fields = Vec::new();
    for text in given {
        let lines = String::from_utf8(read(text)?).map_err(|_| format!("{text} is not UTF-8"))?;
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.split_once(':').ok_or("a header field is written 'Name: value'")?;
            let name = HeaderName::try_from(name.trim())
                .map_err(|_| format!("`{name}` is not the name of a header field"))?;
            let value =
                HeaderValue::try_from(value.trim()).map_err(|_| format!("{name} cannot have that value"))?;
            fields.push((name, value));
        }
    }
    Ok(fields)
}

fn print(answer: &Answer, include: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if include {
        writeln!(out, "HTTP {}", answer.status())?;
        for (name, value) in answer.headers() {
            writeln!(out, "{name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        writeln!(out)?;
    }
    out.write_all(answer.body())?;
    out.flush()
}

fn exit_of(answer: &Answer) -> Exit {
    let status = answer.status();
    if status.is_client_error() || status.is_server_error() { Exit::Refused } else { Exit::Answered }
}

fn exit_of_error(error: &Error) -> Exit {
    match error.kind() {
        ErrorKind::GaveUp | ErrorKind::InProgress => Exit::GivenUp,
        ErrorKind::Unknown => Exit::Unknown,
        ErrorKind::AnswerTooLarge => Exit::TooLarge,
        _ => Exit::NotSent,
    }
}
