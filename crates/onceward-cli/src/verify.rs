//! `onceward verify`: checks over HTTP whether an endpoint is safe to retry, or whether a client retries safely.

mod client;
mod discover;
mod many;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use onceward_verify::endpoint::report::Report;
use onceward_verify::endpoint::{
    Check, Effects, Error, HttpVersion, KeyNotation, Pattern, Progress, Scheme, Webhook, scenarios,
};

use crate::input::header_fields;
use crate::output::or_end;

const AFTER_HELP: &str = "\
Examples:
  onceward verify --list
  onceward verify --url http://127.0.0.1:8080/charges --body '{\"amount\":7}' --dry-run
  onceward verify --url http://127.0.0.1:8080/charges --body '{\"amount\":7}' \\
      --effects-url http://127.0.0.1:3000/ledger --effects-pointer /charges
  onceward verify --url http://127.0.0.1:8080/charges --format junit --output verify.xml
  onceward verify --url http://127.0.0.1:8080/charges --seeds 5 --format markdown
  onceward verify --discover openapi.yaml --url http://127.0.0.1:8080 --dry-run
  onceward verify --client-cmd 'node pay.js'

Exit code:
  0  every promise that was checked holds; some keys may be held as unknown, which the report says
  1  a promise is violated; the report says which, and how to repeat it
  2  a promise could not be checked, or the check could not run";

/// Check from outside that an HTTP endpoint is safe to retry.
///
/// Sends duplicates, races, crashes and mistakes, and counts effects. It sends real requests with real effects: use
/// it on a staging system of your own.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// The endpoint; may be given several times. With --discover, where the service is.
    #[arg(long = "url", value_name = "URL", help = "The endpoint, such as http://127.0.0.1:3000/charges; may be given several times", value_parser = crate::address::url(), required_unless_present_any = ["list", "client_cmd", "discover", "merge"])]
    urls: Vec<String>,
    /// Check a client instead: a shell command that sends one request to `$ONCEWARD_URL` for the intent
    /// `$ONCEWARD_INTENT`, or with {url} and {intent} in it. It is run against a flaky server.
    #[arg(long, value_name = "CMD", conflicts_with_all = ["urls", "discover", "merge"])]
    client_cmd: Option<String>,
    /// Check the operations of an `OpenAPI` 3 description (YAML or JSON) that change something and declare a key (in a header
    /// field, in the query or in the body), and list those that do not.
    #[arg(long, value_name = "FILE", conflicts_with = "merge")]
    discover: Option<PathBuf>,
    /// Put reports (JSON) into one Markdown table, and check nothing. Reports of one NAME are seeds of one column.
    #[arg(long, value_name = "[NAME=]FILE", num_args = 1.., conflicts_with = "urls")]
    merge: Vec<String>,
    /// The method.
    #[arg(long, default_value = "POST")]
    method: String,
    /// A body that has the effect: text, or @FILE, whose bytes need not be text.
    #[arg(long, value_name = "TEXT|@FILE", default_value = "{}")]
    body: String,
    /// A header field of every request, as in 'Authorization: Bearer …'; @FILE reads one per line, which keeps secrets
    /// out of the list of processes. May be given several times.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    headers: Vec<String>,
    /// A header field that is new in every sending, also of one key: `{uuid}`, `{unix}`, `{unix_ms}` and `{count}` are filled in.
    /// May be given several times.
    #[arg(long = "fresh-header", value_name = "K: V", value_parser = field)]
    fresh_headers: Vec<(String, String)>,

    /// Where the number of effects is read: a plain number, or JSON with --effects-pointer.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), conflicts_with_all = ["effects_cmd", "effects_sql"], help_heading = "Effects")]
    effects_url: Option<String>,
    /// Where in that JSON the number is, such as /count.
    #[arg(long, value_name = "POINTER", requires = "effects_url", help_heading = "Effects")]
    effects_pointer: Option<String>,
    /// A command that prints the number of effects.
    #[arg(long, value_name = "CMD", help_heading = "Effects")]
    effects_cmd: Option<String>,
    /// A query that gives the number of effects: postgres://…, mysql://… or sqlite:FILE, asked with psql, mariadb or
    /// sqlite3.
    #[arg(long, value_names = ["URL", "QUERY"], num_args = 2, conflicts_with = "effects_cmd", help_heading = "Effects")]
    effects_sql: Option<Vec<String>>,

    /// Requests that are sent together.
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Load")]
    clients: usize,
    /// Rounds of a scenario.
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Load")]
    rounds: usize,
    /// How often the server is killed.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Load")]
    kills: usize,
    /// The seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Load")]
    seed: u64,
    /// How many seeds, from --seed on; with more than one there is a table.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000), help_heading = "Load")]
    seeds: u64,
    /// How long an answer may take; with --client-cmd, how long a run of the client may take.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, help_heading = "Load")]
    timeout: Duration,
    /// Only this scenario; may be given several times.
    #[arg(long = "scenario", value_name = "NAME", help_heading = "Load")]
    scenarios: Vec<String>,
    /// List the scenarios and what each checks, and send nothing.
    #[arg(long, help_heading = "Load")]
    list: bool,
    /// Show what would be done and how many requests it takes, and send nothing.
    #[arg(long, help_heading = "Load")]
    dry_run: bool,

    /// Another valid body; made from --body where that is JSON, if not given.
    #[arg(long, value_name = "TEXT|@FILE", help_heading = "Single scenarios")]
    alt_body: Option<String>,
    /// Two header fields that identify two tenants: credentials, cookies or hosts. May be given several times.
    #[arg(long, value_names = ["K: A", "K: B"], num_args = 2, value_parser = field, help_heading = "Single scenarios")]
    tenant_header: Vec<(String, String)>,
    /// The credential of the first tenant after it was refreshed.
    #[arg(long, value_name = "K: V", value_parser = field, help_heading = "Single scenarios")]
    refreshed_header: Option<(String, String)>,
    /// Another endpoint of the service that takes the same request.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), help_heading = "Single scenarios")]
    other_url: Option<String>,
    /// Another instance of the service; may be given several times.
    #[arg(long = "also-url", value_name = "URL", value_parser = crate::address::url(), help_heading = "Single scenarios")]
    also_urls: Vec<String>,
    /// A command that starts the service; it is killed with SIGKILL and started again.
    #[arg(long, value_name = "CMD", help_heading = "Single scenarios")]
    start_cmd: Option<String>,
    /// Where what --start-cmd starts listens, if that is not --url: a service behind a gateway, or a store.
    #[arg(long, value_name = "URL", requires = "start_cmd", value_parser = crate::address::url(), help_heading = "Single scenarios")]
    start_url: Option<String>,
    /// A command that runs after each start and prints header fields, one per line, for all requests: a login.
    #[arg(long, value_name = "CMD", help_heading = "Single scenarios")]
    ready_cmd: Option<String>,
    /// A resource with an ETag that is changed with PUT and If-Match.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), help_heading = "Single scenarios")]
    versioned_url: Option<String>,
    /// What is put there; --body if not given.
    #[arg(long, value_name = "TEXT|@FILE", requires = "versioned_url", help_heading = "Single scenarios")]
    versioned_body: Option<String>,
    /// An endpoint for signed events.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), requires = "webhook_secret_env", help_heading = "Single scenarios")]
    webhook_url: Option<String>,
    /// How events are signed.
    #[arg(long, value_enum, default_value = "standard", help_heading = "Single scenarios")]
    webhook_scheme: WebhookScheme,
    /// The environment variable with the secret that they are signed with.
    #[arg(long, value_name = "NAME", help_heading = "Single scenarios")]
    webhook_secret_env: Option<String>,
    /// An event; {"type":"charge.succeeded"} if not given.
    #[arg(long, value_name = "TEXT|@FILE", help_heading = "Single scenarios")]
    webhook_body: Option<String>,
    /// Where in the event its id is.
    #[arg(long, value_name = "POINTER", default_value = "/id", help_heading = "Single scenarios")]
    webhook_id_pointer: String,
    /// What kind of event it is, for X-GitHub-Event (`push` if not given) and X-Shopify-Topic (`orders/create`).
    #[arg(long, value_name = "NAME", help_heading = "Single scenarios")]
    webhook_event: Option<String>,
    /// A header field that makes the endpoint fail before its effect; may be given several times, for several ways to
    /// fail.
    #[arg(long = "fail-header", value_name = "K: V", value_parser = field, help_heading = "Single scenarios")]
    fail_headers: Vec<(String, String)>,
    /// A header field that makes the endpoint fail after its effect. `{status}` in the value stands for 408, 500, 502,
    /// 503 and 504 in turn. May be given several times, for several ways to fail.
    #[arg(long = "fail-after-effect-header", value_name = "K: V", value_parser = field, help_heading = "Single scenarios")]
    fail_after_effect_headers: Vec<(String, String)>,
    /// A header field that makes the request take longer than the lease.
    #[arg(long, value_name = "K: V", value_parser = field, help_heading = "Single scenarios")]
    slow_header: Option<(String, String)>,
    /// How long the outcome of a key may stay unknown after a crash.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, help_heading = "Single scenarios")]
    lease: Duration,
    /// How long the endpoint promises to keep an answer.
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Single scenarios")]
    retention: Option<Duration>,

    /// The header field of the key.
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key", help_heading = "Endpoint")]
    key_header: String,
    /// Where in the JSON of the body the key belongs, instead of in a header field, such as `/request_id`.
    #[arg(long, value_name = "POINTER", help_heading = "Endpoint")]
    key_pointer: Option<String>,
    /// The parameter of the query that carries the key, instead of a header field.
    #[arg(long, value_name = "NAME", conflicts_with = "key_pointer", help_heading = "Endpoint")]
    key_parameter: Option<String>,
    /// Send the key as it is, without quotes. Found out by itself where a key in quotes is refused.
    #[arg(long, help_heading = "Endpoint")]
    raw_key: bool,
    /// Speak HTTP/2 (with prior knowledge, if the URL is not https).
    #[arg(long, help_heading = "Endpoint")]
    http2: bool,
    /// Certificate authorities (PEM) to trust besides those of the system, for https.
    #[arg(long = "ca", value_name = "FILE", help_heading = "Endpoint")]
    authorities: Option<PathBuf>,
    /// A 5xx is a final answer that is replayed, as with Stripe.
    #[arg(long, help_heading = "Endpoint")]
    failures_are_final: bool,
    /// A header field of responses that may differ in a replay; may be given several times.
    #[arg(long = "volatile-field", value_name = "NAME", help_heading = "Endpoint")]
    volatile_fields: Vec<String>,
    /// An answer that says "not now", besides 409, 423, 425, 429 and 503: a status, or a JSON pointer such as /errors or
    /// /code=BUSY. May be given several times.
    #[arg(long, value_name = "STATUS|POINTER", value_parser = pattern, help_heading = "Endpoint")]
    not_now: Vec<Pattern>,
    /// An answer that refuses a request, besides 4xx; may be given several times.
    #[arg(long, value_name = "STATUS|POINTER", value_parser = pattern, help_heading = "Endpoint")]
    refused: Vec<Pattern>,
    /// An answer that is a failure, besides 5xx; may be given several times.
    #[arg(long, value_name = "STATUS|POINTER", value_parser = pattern, help_heading = "Endpoint")]
    failed: Vec<Pattern>,
    /// An answer that says that the outcome is unknown and an operator has to settle it; may be given several times.
    #[arg(long, value_name = "STATUS|POINTER", value_parser = pattern, help_heading = "Endpoint")]
    held: Vec<Pattern>,
    /// Confirm that the host is yours, although its address is neither loopback nor private.
    #[arg(long = "i-own-this-host", help_heading = "Endpoint")]
    own_host: bool,

    /// The format of the report.
    #[arg(long, value_enum, default_value = "text", help_heading = "Report")]
    format: Format,
    /// Where the report goes; standard output if not given.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Text for a terminal
    Text,
    /// JSON for programs
    Json,
    /// `JUnit` XML for build servers
    Junit,
    /// One HTML page with diagrams
    Html,
    /// A summary and a table, to paste
    Markdown,
}

#[derive(Clone, Copy, ValueEnum)]
enum WebhookScheme {
    /// Stripe-Signature
    Stripe,
    /// X-Hub-Signature-256
    Github,
    /// Standard Webhooks
    Standard,
    /// X-Shopify-Hmac-Sha256
    Shopify,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        if self.list {
            for scenario in scenarios() {
                println!("{:<24} {}", scenario.name, scenario.promise);
            }
            println!("\nWith --client-cmd:");
            for scenario in onceward_verify::client_check::scenarios() {
                println!("{:<24} {}", scenario.name, scenario.promise);
            }
            return ExitCode::SUCCESS;
        }
        // Dropping an interrupted check kills what it started.
        let done = tokio::select! {
            done = self.run_chosen() => done,
            _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
        };
        done.unwrap_or_else(|why| stop(&why))
    }

    async fn run_chosen(&self) -> Result<ExitCode, String> {
        if !self.merge.is_empty() {
            return self.merge();
        }
        if let Some(command) = &self.client_cmd {
            return self.check_client(command).await;
        }
        if let Some(path) = &self.discover {
            return self.check_discovered(path).await;
        }
        if let [url] = &self.urls[..]
            && self.seeds == 1
        {
            let check = self.check(url)?;
            if self.dry_run {
                return Ok(dry_run(&check));
            }
            let report = run_with_progress(&check).await.map_err(|error| error.to_string())?;
            return Ok(self.write_report(&report));
        }
        let named = |check: Check| (check.concealed_url(), check);
        let checks = self.urls.iter().map(|url| self.check(url).map(named));
        self.check_many(checks.collect::<Result<_, String>>()?, None).await
    }

    fn check(&self, url: &str) -> Result<Check, String> {
        let effects = match (&self.effects_url, &self.effects_cmd, self.effects_sql.as_deref()) {
            (_, _, Some([url, query])) => Effects::Sql { url: url.clone(), query: query.clone() },
            (Some(url), ..) => {
                Effects::Url { url: url.clone(), pointer: self.effects_pointer.clone().unwrap_or_default() }
            }
            (None, Some(command), _) => Effects::Command(command.clone()),
            (None, None, _) => Effects::Unseen,
        };
        let tenants = self.tenant_header.chunks(2).filter_map(|pair| pair.to_vec().try_into().ok());
        Ok(Check::new(url)
            .with_method(&self.method)
            .with_body(bytes(&self.body)?)
            .with_fresh_fields(self.fresh_headers.clone())
            .with_key_pointer(self.key_pointer.clone())
            .with_key_parameter(self.key_parameter.clone())
            .with_headers(header_fields(&self.headers)?)
            .with_key_header(&self.key_header)
            .with_key_notation(if self.raw_key { KeyNotation::Raw } else { KeyNotation::Quoted })
            .with_version(if self.http2 { HttpVersion::Http2 } else { HttpVersion::Http1 })
            .with_authorities(self.authorities.clone())
            .with_clients(self.clients)
            .with_rounds(self.rounds)
            .with_kills(self.kills)
            .with_effects(effects)
            .with_alt_body(self.alt_body.as_deref().map(bytes).transpose()?)
            .with_tenants(tenants)
            .with_refreshed(self.refreshed_header.clone())
            .with_start_url(self.start_url.clone())
            .with_ready_command(self.ready_cmd.clone())
            .with_versioned_url(self.versioned_url.clone())
            .with_versioned_body(self.versioned_body.as_deref().map(bytes).transpose()?)
            .with_webhook(self.webhook()?)
            .with_other_url(self.other_url.clone())
            .with_also_urls(&self.also_urls)
            .with_start_command(self.start_cmd.clone())
            .with_fail_headers(self.fail_headers.clone())
            .with_fail_after_effect_headers(self.fail_after_effect_headers.clone())
            .with_slow_header(self.slow_header.clone())
            .with_lease(self.lease)
            .with_retention(self.retention)
            .with_failures_are_final(self.failures_are_final)
            .with_volatile_fields(&self.volatile_fields)
            .with_not_now(self.not_now.clone())
            .with_refused(self.refused.clone())
            .with_failed(self.failed.clone())
            .with_held(self.held.clone())
            .with_scenarios(&self.scenarios)
            .with_timeout(self.timeout)
            .with_seed(self.seed)
            .with_own_host(self.own_host))
    }

    fn webhook(&self) -> Result<Option<Webhook>, String> {
        let (Some(url), Some(variable)) = (&self.webhook_url, &self.webhook_secret_env) else {
            return Ok(None);
        };
        let secret = std::env::var(variable).map_err(|_| format!("the environment has no {variable}"))?;
        let scheme = match self.webhook_scheme {
            WebhookScheme::Stripe => Scheme::Stripe,
            WebhookScheme::Github => Scheme::GitHub,
            WebhookScheme::Standard => Scheme::Standard,
            WebhookScheme::Shopify => Scheme::Shopify,
        };
        let mut webhook = Webhook::new(url, scheme, secret).with_id_pointer(&self.webhook_id_pointer);
        if let Some(name) = &self.webhook_event {
            webhook = webhook.with_event_name(name);
        }
        if let Some(body) = &self.webhook_body {
            webhook = webhook.with_body(bytes(body)?);
        }
        Ok(Some(webhook))
    }

    fn write_report(&self, report: &Report) -> ExitCode {
        let text = match self.format {
            Format::Text => report.text(),
            Format::Json => report.json(),
            Format::Junit => report.junit(),
            Format::Html => report.html(),
            Format::Markdown => report.markdown(),
        };
        match self.write(&text) {
            Ok(()) => ExitCode::from(report.exit_code()),
            Err(why) => stop(&why),
        }
    }

    /// Writes a report to where it goes.
    fn write(&self, text: &str) -> Result<(), String> {
        let written = match &self.output {
            Some(path) => std::fs::write(path, text),
            None => or_end(writeln!(std::io::stdout(), "{}", text.trim_end())),
        };
        written.map_err(|error| format!("the report cannot be written: {error}"))
    }
}

/// Runs the check with a progress bar, if standard error is a terminal.
async fn run_with_progress(check: &Check) -> Result<Report, Error> {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{bar:40} {msg}  {pos} of at most {len} requests, {elapsed}");
    bar.set_style(style.expect("a valid template"));
    bar.enable_steady_tick(Duration::from_millis(100));
    let report = check
        .run_with(&|progress| match progress {
            Progress::Planned(requests) => bar.set_length(requests),
            Progress::Begins(name) => bar.set_message(name),
            Progress::Sent(requests) => bar.inc(requests),
            _ => {}
        })
        .await;
    bar.finish_and_clear();
    report
}

fn dry_run(check: &Check) -> ExitCode {
    match check.plan() {
        Ok(plan) => {
            for planned in &plan {
                println!("{:<24} {:>6}  {}", planned.name, planned.requests_max, planned.what);
            }
            println!(
                "{:<24} {:>6}  requests at most",
                "",
                plan.iter().map(|planned| planned.requests_max).sum::<u64>()
            );
            ExitCode::SUCCESS
        }
        Err(error) => stop(&error.to_string()),
    }
}

fn stop(why: &str) -> ExitCode {
    eprintln!("onceward: {why}");
    ExitCode::from(2)
}

/// The bytes of the text, or of the file after `@`.
fn bytes(given: &str) -> Result<Bytes, String> {
    match given.strip_prefix('@') {
        Some(path) => std::fs::read(path).map(Bytes::from).map_err(|error| format!("{path}: {error}")),
        None => Ok(Bytes::from(given.to_owned())),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    text.parse().map_err(|error: Error| error.to_string())
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| format!("`{text}` is not `Name: value`"))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// `500ms`, `30s`, `5m` or `24h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time such as 500ms, 30s, 5m or 24h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(ms).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
#[path = "verify_test.rs"]
mod tests;
