//! `onceward verify`: checks over HTTP whether an endpoint is safe to retry.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use onceward_verify::endpoint::report::Report;
use onceward_verify::endpoint::{Check, Effects, Error, KeyForm, Progress, Version, scenarios};

use crate::input::header_fields;
use crate::output::or_end;

const AFTER_HELP: &str = "\
Examples:
  onceward verify --list
  onceward verify --url http://127.0.0.1:8080/charges --body '{\"amount\":7}' --dry-run
  onceward verify --url http://127.0.0.1:8080/charges --body '{\"amount\":7}' \\
      --effects-url http://127.0.0.1:3000/ledger --effects-pointer /charges
  onceward verify --url http://127.0.0.1:8080/charges --format junit --output verify.xml

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
    /// The endpoint.
    #[arg(long, value_name = "URL", help = "The endpoint, such as http://127.0.0.1:3000/charges", value_parser = crate::address::url(), required_unless_present = "list")]
    url: Option<String>,
    /// The method.
    #[arg(long, default_value = "POST")]
    method: String,
    /// A body that has the effect: text, or @FILE.
    #[arg(long, value_name = "TEXT|@FILE", default_value = "{}")]
    body: String,
    /// A header field of every request, as in 'Authorization: Bearer …'; @FILE reads one per line, which keeps secrets
    /// out of the list of processes. May be given several times.
    #[arg(long = "header", short = 'H', value_name = "FIELD")]
    headers: Vec<String>,

    /// Where the number of effects is read: a plain number, or JSON with --effects-pointer.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), conflicts_with = "effects_cmd", help_heading = "Effects")]
    effects_url: Option<String>,
    /// Where in that JSON the number is, such as /count.
    #[arg(long, value_name = "POINTER", requires = "effects_url", help_heading = "Effects")]
    effects_pointer: Option<String>,
    /// A command that prints the number of effects.
    #[arg(long, value_name = "CMD", help_heading = "Effects")]
    effects_cmd: Option<String>,

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
    /// How long an answer may take.
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
    /// Two header fields that identify two tenants.
    #[arg(long, value_names = ["K: A", "K: B"], num_args = 2, value_parser = field, help_heading = "Single scenarios")]
    tenant_header: Option<Vec<(String, String)>>,
    /// Another endpoint of the service that takes the same request.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), help_heading = "Single scenarios")]
    other_url: Option<String>,
    /// Another instance of the service; may be given several times.
    #[arg(long = "also-url", value_name = "URL", value_parser = crate::address::url(), help_heading = "Single scenarios")]
    also_urls: Vec<String>,
    /// A command that starts the service; it is killed with SIGKILL and started again.
    #[arg(long, value_name = "CMD", help_heading = "Single scenarios")]
    start_cmd: Option<String>,
    /// A header field that makes the endpoint fail with a 5xx before its effect.
    #[arg(long, value_name = "K: V", value_parser = field, help_heading = "Single scenarios")]
    fail_header: Option<(String, String)>,
    /// A header field that makes the endpoint fail after its effect. `{status}` in the value stands for 408, 500, 502,
    /// 503 and 504 in turn.
    #[arg(long, value_name = "K: V", value_parser = field, help_heading = "Single scenarios")]
    fail_after_effect_header: Option<(String, String)>,
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
    /// Send the key as it is, without quotes.
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
    /// A status that says "not now", besides 409, 423, 425, 429 and 503; may be given several times.
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..600), help_heading = "Endpoint")]
    not_now: Vec<u16>,
    /// A status that refuses a request, besides 4xx; may be given several times.
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..600), help_heading = "Endpoint")]
    refused: Vec<u16>,
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

impl Args {
    pub async fn run(self) -> ExitCode {
        if self.list {
            for scenario in scenarios() {
                println!("{:<24} {}", scenario.name, scenario.promise);
            }
            return ExitCode::SUCCESS;
        }
        let check = match self.check() {
            Ok(check) => check,
            Err(why) => return stop(&why),
        };
        if self.dry_run {
            return dry_run(&check);
        }
        // Dropping an interrupted check kills the server that it started.
        let report = tokio::select! {
            report = run_with_progress(&check) => report,
            _ = tokio::signal::ctrl_c() => return stop("interrupted"),
        };
        match report {
            Ok(report) => self.write_report(&report),
            Err(error) => stop(&error.to_string()),
        }
    }

    fn check(&self) -> Result<Check, String> {
        let effects = match (&self.effects_url, &self.effects_cmd) {
            (Some(url), _) => {
                Effects::Url { url: url.clone(), pointer: self.effects_pointer.clone().unwrap_or_default() }
            }
            (None, Some(command)) => Effects::Command(command.clone()),
            (None, None) => Effects::Unseen,
        };
        Ok(Check {
            method: self.method.clone(),
            body: text(&self.body)?,
            headers: header_fields(&self.headers)?,
            key_header: self.key_header.clone(),
            key_form: if self.raw_key { KeyForm::Raw } else { KeyForm::Quoted },
            version: if self.http2 { Version::Http2 } else { Version::Http1 },
            authorities: self.authorities.clone(),
            clients: self.clients,
            rounds: self.rounds,
            kills: self.kills,
            effects,
            alt_body: self.alt_body.as_deref().map(text).transpose()?,
            tenants: self.tenant_header.clone().and_then(|pair| pair.try_into().ok()),
            other_url: self.other_url.clone(),
            also_urls: self.also_urls.clone(),
            start_command: self.start_cmd.clone(),
            fail_header: self.fail_header.clone(),
            fail_after_effect_header: self.fail_after_effect_header.clone(),
            slow_header: self.slow_header.clone(),
            lease: self.lease,
            retention: self.retention,
            failures_are_final: self.failures_are_final,
            volatile_fields: self.volatile_fields.clone(),
            not_now: self.not_now.clone(),
            refused: self.refused.clone(),
            scenarios: self.scenarios.clone(),
            timeout: self.timeout,
            seed: self.seed,
            own_host: self.own_host,
            ..Check::new(self.url.clone().unwrap_or_default())
        })
    }

    fn write_report(&self, report: &Report) -> ExitCode {
        let text = match self.format {
            Format::Text => report.text(),
            Format::Json => report.json(),
            Format::Junit => report.junit(),
            Format::Html => report.html(),
            Format::Markdown => report.markdown(),
        };
        let written = match &self.output {
            Some(path) => std::fs::write(path, text),
            None => or_end(writeln!(std::io::stdout(), "{}", text.trim_end())),
        };
        match written {
            Ok(()) => ExitCode::from(report.exit_code()),
            Err(error) => stop(&format!("the report cannot be written: {error}")),
        }
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
            Progress::Ends(_) => {}
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

/// The text, or the content of the file after `@`.
fn text(given: &str) -> Result<String, String> {
    match given.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}")),
        None => Ok(given.to_owned()),
    }
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
