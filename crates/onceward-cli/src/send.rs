//! `onceward send`: sends one request from a shell or a cron job, safe to run again.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use onceward_client::{
    BreakerConfig, Client, Error, ErrorKind, Intent, ListWhich, Reply, RetryConfig, SettleIntent, WhenOpen,
    is_credential,
};

use crate::input::{header_fields, read};
use crate::output::or_end;
use crate::receipts::explain::{duration_text, without_control_characters};

/// Shown below the options.
const AFTER_HELP: &str = "\
With a journal and the name of an intent, running the same command again is always safe: an intent that
was answered prints its recorded answer and sends nothing; one that was not is sent again with the same
key and the same bytes. The same name with another request is refused.

Examples:
  onceward send --url http://127.0.0.1:8080/charges --body '{\"amount\":7}'
  onceward send --url https://pay.example/charges --body @charge.json \\
      --journal ~/.outgoing --intent order-7

Retried: no answer, 408, 425, 429 and 5xx, with growing pauses, until --at-most or --tries is used up. A 5xx that the
server has recorded is an answer and is not retried.

Credentials are never written to the journal: Authorization, Cookie, X-Api-Key and every field with token,
secret, password, session or the like in its name, and those given with --credential. Only their names are
kept. Give them again with --resume: without them an intent is not sent.

An unknown intent is not sent again until a person has checked the service and settles it:

  onceward send --settle done --status 201 --body @charge-1.json --journal ~/.outgoing --intent order-7
  onceward send --settle not-done --journal ~/.outgoing --intent order-7

--list prints one line per intent, with tabs between: name, state (sending, open, unknown, answered 201),
age, method and URL without its query, last error.

Exit code:
  0  answered with 2xx or 3xx; the body is on standard output (or: settled, listed)
  1  answered with 4xx or 5xx, and that is final; the body is on standard output
  2  nothing was sent: the command, the journal, the intent's name or the credentials cannot be used
  3  given up for now; run it again, or --resume
  4  unknown: it may or may not have taken effect; it is not sent again until it is settled
  5  it is done, but its answer is too large to print, or the server did not keep it";

/// Send one request that is safe to send again: from a shell, a script or a cron job.
///
/// Adds an Idempotency-Key, retries with growing pauses, and remembers the request and its response in a journal.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Where to send it.
    #[arg(long, value_parser = crate::address::url(), required_unless_present_any = ["resume", "settle", "list"], conflicts_with_all = ["resume", "settle", "list"])]
    url: Option<String>,

    /// The method.
    #[arg(long, default_value = "POST", conflicts_with_all = ["resume", "settle", "list"])]
    method: Method,

    /// The body: text, @FILE, or @- for standard input. JSON is sent as such unless a header says
    /// otherwise.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["resume", "list"])]
    body: Option<String>,

    /// A header field, as in 'Authorization: Bearer …'; @FILE reads one per line, which keeps secrets
    /// out of the list of processes. May be given several times.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    headers: Vec<String>,

    /// A header field that is a credential although its name does not say so; given like --header. Its value is
    /// never written to the journal.
    #[arg(long, value_name = "FIELD")]
    credential: Vec<String>,

    /// The name of the intent in the journal.
    #[arg(long, value_name = "NAME", requires = "journal", conflicts_with_all = ["resume", "list"])]
    intent: Option<String>,

    /// The key to send; a random one unless given.
    #[arg(long, conflicts_with_all = ["resume", "settle", "list"])]
    key: Option<String>,

    /// The folder in which requests, keys and answers are kept.
    #[arg(long, value_name = "DIR", env = "ONCEWARD_JOURNAL")]
    journal: Option<PathBuf>,

    /// Send every unfinished intent in the journal; prints one line for each.
    #[arg(long, requires = "journal")]
    resume: bool,

    /// List the intents in the journal that have no answer, or all of them, and send nothing.
    #[arg(long, value_enum, value_name = "WHICH", requires = "journal", conflicts_with_all = ["resume", "settle"], num_args = 0..=1, default_missing_value = "unfinished")]
    list: Option<Listed>,

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

    /// How long to keep trying, in all.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    at_most: u64,

    /// How many tries to make before giving up for now. Default: as many as --at-most has time for.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    tries: Option<u32>,

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

/// Which intents are listed.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Listed {
    /// Those without an answer: being sent, open or unknown.
    Unfinished,
    /// All of them.
    All,
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
            None if self.list.is_some() => self.list().await,
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
            println!("{}\t{line}", without_control_characters(&resumed.intent));
            worst = worst.max(exit);
        });
        resumed.await.map_err(|error| error.to_string())?;
        Ok(worst)
    }

    async fn list(&self) -> Result<Exit, String> {
        let which = match self.list {
            Some(Listed::All) => ListWhich::All,
            _ => ListWhich::Unfinished,
        };
        let (client, _) = self.client()?;
        let listed = client.list(which, |intent| println!("{}", line(&intent)));
        listed.await.map_err(|error| error.to_string())?;
        Ok(Exit::Answered)
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
                (SettleIntent::Done(answer), question)
            }
            (SettleAs::Done, None) => {
                return Err("--settle done needs --status, the status of the answer for later runs".into());
            }
            (SettleAs::NotDone, None) if self.body.is_none() && fields.is_empty() => (
                SettleIntent::NotDone,
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
        // This process has nothing else to do: it may try until its time is up.
        let limits = RetryConfig::default()
            .with_breaker(BreakerConfig::default().with_when_open(WhenOpen::Wait))
            .with_tries_max(self.tries.unwrap_or(u32::MAX))
            .with_call_at_most(Duration::from_secs(self.at_most));
        let mut builder = Client::builder().with_retry_config(limits).with_journal_name("send");
        if let Some(folder) = &self.journal {
            let folder = folder.to_str().ok_or("the journal's folder is not UTF-8")?;
            builder = builder.with_journal(format!("embedded:{folder}"));
        }
        let mut fields = Vec::new();
        for (name, value) in fields_of(&self.headers)? {
            if is_credential(&name) {
                builder = builder.with_header(name, value);
            } else {
                fields.push((name, value));
            }
        }
        for (name, value) in fields_of(&self.credential)? {
            builder = builder.with_credential_name(name.clone()).with_header(name, value);
        }
        Ok((builder.build().map_err(|error| error.to_string())?, fields))
    }
}

fn fields_of(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut fields = Vec::new();
    for (name, value) in header_fields(given)? {
        let parsed =
            HeaderName::try_from(&name).map_err(|_| format!("`{name}` is not the name of a header field"))?;
        let value = HeaderValue::try_from(value).map_err(|_| format!("{name} cannot have that value"))?;
        fields.push((parsed, value));
    }
    Ok(fields)
}

/// One line of `--list`.
fn line(intent: &Intent) -> String {
    let request = intent.request.as_ref();
    let request = request.map(|request| format!("{} {}", request.method, request.url)).unwrap_or_default();
    let age = duration_text(i64::try_from(intent.created_ago.as_millis()).unwrap_or(i64::MAX));
    let columns = [intent.name.clone(), intent.state.to_string(), age, request, intent.note.clone()];
    // A tab or a line break within a column would look like another one.
    let columns: Vec<String> = columns.iter().map(|text| without_control_characters(text)).collect();
    columns.join("\t").trim_end().to_owned()
}

fn print(answer: &Reply, include: bool) -> std::io::Result<()> {
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

fn exit_of(answer: &Reply) -> Exit {
    let status = answer.status();
    if status.is_client_error() || status.is_server_error() { Exit::Refused } else { Exit::Answered }
}

fn exit_of_error(error: &Error) -> Exit {
    match error.kind() {
        ErrorKind::GaveUp | ErrorKind::InProgress => Exit::GivenUp,
        ErrorKind::Unknown => Exit::Unknown,
        ErrorKind::AnswerNotAvailable => Exit::TooLarge,
        _ => Exit::NotSent,
    }
}
