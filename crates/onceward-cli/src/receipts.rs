//! `onceward receipts`: what an operator asks of a running gateway. Everything goes through the receipts
//! API; this only finds the words.

mod remote;
mod table;
pub mod words;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::admin::shape::{
    HttpShown, OutcomeGiven, PolicyAsked, Preset, ReceiptShown, SettleAsked, State, Verdict,
};
use remote::Remote;

/// See what became of each intent, and settle what is in doubt.
///
/// held: it is running. done: it is recorded, and every retry gets its answer. unknown: it may or may not
/// have taken effect; it is never run again by itself, and somebody has to settle it. gone: its answer was
/// forgotten at the end of its retention.
#[derive(clap::Args)]
pub struct Args {
    /// The admin address of the gateway.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ONCEWARD_ADMIN_URL",
        default_value = "http://127.0.0.1:8081"
    )]
    admin: String,
    /// Its admin token, if it has one.
    #[arg(long, global = true, value_name = "TOKEN", env = "ONCEWARD_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print JSON, for machines.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List receipts.
    List {
        /// Only this scope.
        #[arg(long)]
        scope: Option<String>,
        /// Only this operation, such as "POST /charges".
        #[arg(long)]
        operation: Option<String>,
        /// Only this state.
        #[arg(long, value_enum)]
        state: Option<State>,
        /// No more than this many.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: usize,
    },
    /// Show one receipt, what it means, and what to do next.
    Show(Which),
    /// Say what became of an effect in doubt. Look into the service first: this is believed.
    #[command(group(clap::ArgGroup::new("found").required(true).args(["done", "not_done"])))]
    Settle {
        #[command(flatten)]
        which: Which,
        /// It happened: every retry gets the answer given here.
        #[arg(long)]
        done: bool,
        /// It did not happen: the next retry runs.
        #[arg(long)]
        not_done: bool,
        #[command(flatten)]
        answer: AnswerGiven,
        #[command(flatten)]
        care: Care,
    },
    /// Free the key of an effect in doubt that certainly did not happen. The same as settle --not-done.
    Release {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        care: Care,
    },
}

/// Which receipt, as `onceward receipts list` shows it.
#[derive(clap::Args)]
struct Which {
    /// Who asked.
    scope: String,
    /// What for, such as "POST /charges".
    operation: String,
    /// With which key.
    key: String,
}

/// The answer that every retry gets from now on.
#[derive(clap::Args)]
struct AnswerGiven {
    /// Its status: for a request through the gateway.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["verdict", "not_done"])]
    status: Option<u16>,
    /// Its body.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    body: String,
    /// A field of it, as "name: value". Without a content type, one is chosen by the body.
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["verdict", "not_done"])]
    header: Vec<String>,
    /// How it ended: for a claim through the receipts API, whose outcome has no status.
    #[arg(long, value_enum, conflicts_with = "not_done")]
    verdict: Option<Verdict>,
    /// How long it is kept: http 24 hours, queue 7 days, ledger for ever.
    #[arg(long, value_enum, default_value_t = Preset::Http)]
    preset: Preset,
}

/// What keeps a tired person from a slip.
#[derive(clap::Args)]
struct Care {
    /// Only if the receipt still speaks of this run.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        match self.ask().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("onceward: {message}");
                ExitCode::FAILURE
            }
        }
    }

    async fn ask(self) -> Result<(), String> {
        let remote = Remote::new(&self.admin, self.token)?;
        match self.command {
            Command::List { scope, operation, state, limit } => {
                let (receipts, more) =
                    remote.list(scope.as_deref(), operation.as_deref(), state, limit).await?;
                if self.json {
                    print_json(&receipts);
                } else {
                    print!("{}", table::table(&receipts, more));
                }
            }
            Command::Show(which) => {
                let receipt = remote.show(&which.scope, &which.operation, &which.key).await?;
                if self.json {
                    print_json(&receipt);
                } else {
                    print!("{}", table::card(&receipt));
                }
            }
            Command::Settle { which, done, answer, care, .. } => {
                let done = if done { Some(answer.read()?) } else { None };
                let preset = answer.preset;
                settle(&remote, which, done, preset, &care, self.json).await?;
            }
            Command::Release { which, care } => {
                settle(&remote, which, None, Preset::Http, &care, self.json).await?;
            }
        }
        Ok(())
    }
}

async fn settle(
    remote: &Remote,
    which: Which,
    done: Option<OutcomeGiven>,
    preset: Preset,
    care: &Care,
    json: bool,
) -> Result<(), String> {
    let receipt = remote.show(&which.scope, &which.operation, &which.key).await?;
    let fence = receipt.fence.ok_or("the receipt cannot be read, so it cannot be settled")?;
    if let Some(expected) = care.fence
        && expected != fence
    {
        return Err(format!("the receipt speaks of run {fence} now, not {expected}; look again"));
    }
    if !words::is_in_doubt(&receipt) {
        return Err(format!("there is nothing to settle. {}", words::meaning(&receipt)));
    }
    if !care.yes {
        eprint!("{}", table::card(&receipt));
        confirm(match &done {
            Some(_) => "It happened, and every retry gets the answer that you give. Settle it so?",
            None => "It did NOT happen, and the next retry runs. Settle it so?",
        })?;
    }
    let policy = PolicyAsked { preset, ..PolicyAsked::default() };
    let not_done = done.is_none();
    let Which { scope, operation, key } = which;
    remote.settle(&SettleAsked { scope, operation, key, fence, done, not_done, policy }).await?;
    match (json, not_done) {
        (true, _) => println!("{{\"settled\":true}}"),
        (false, true) => println!("Settled: not done. The next retry runs."),
        (false, false) => println!("Settled: done. Every retry gets this answer."),
    }
    Ok(())
}

impl AnswerGiven {
    fn read(&self) -> Result<OutcomeGiven, String> {
        let none = OutcomeGiven { verdict: Verdict::Succeeded, body: None, body_base64: None, http: None };
        let Some(status) = self.status else {
            let verdict = self.verdict.ok_or(
                "say what every retry is to get: --status CODE for a request through the gateway, --verdict for a claim through the receipts API",
            )?;
            return Ok(OutcomeGiven { verdict, body: Some(self.body.clone()), ..none });
        };
        let mut headers = Vec::new();
        for field in &self.header {
            let (name, value) =
                field.split_once(':').ok_or(format!("--header {field}: not `name: value`"))?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !typed && !self.body.is_empty() {
            let json = serde_json::from_str::<serde_json::Value>(&self.body).is_ok();
            let media = if json { "application/json" } else { "text/plain; charset=utf-8" };
            headers.insert(0, ("content-type".into(), media.into()));
        }
        let verdict = if status < 400 { Verdict::Succeeded } else { Verdict::Failed };
        let http = HttpShown { status, headers, body: Some(self.body.clone()), body_base64: None };
        Ok(OutcomeGiven { verdict, http: Some(http), ..none })
    }
}

pub fn confirm(question: &str) -> Result<(), String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err("nobody is here to confirm it; say --yes if it is meant".into());
    }
    eprint!("\n{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    stdin.read_line(&mut line).map_err(|error| error.to_string())?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err("nothing was changed".into()),
    }
}

fn print_json(value: &impl serde::Serialize) {
    println!("{}", serde_json::to_string_pretty(value).expect("plain values are JSON"));
}

/// The last words of a command about this receipt.
fn shown_id(receipt: &ReceiptShown) -> String {
    let parts = [&receipt.scope, &receipt.operation, &receipt.key];
    let options_end = if parts.iter().any(|part| part.starts_with('-')) { "-- " } else { "" };
    format!("{options_end}{}", parts.map(|part| words::quoted(part)).join(" "))
}
