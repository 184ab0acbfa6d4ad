//! `onceward receipts`: what an operator asks of a running gateway, through the receipts API.

mod choices;
mod remote;
mod settle;
mod table;
pub mod words;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::admin::shape::{CloseAsked, IntentAsked, PolicyAsked, Preset, ReceiptShown, State};
use remote::{Remote, Wanted};
use settle::{AnswerGiven, Care, settle};

const AFTER_HELP: &str = "\
States:
  waiting  no run has begun, or the next one comes later
  held     it is running
  done     the outcome is recorded, and every retry gets it; or it was closed, and every retry is refused
  unknown  it may or may not have taken effect; it is not run again until somebody settles it
  dead     it was tried as often as allowed; somebody has to look at it
  gone     the outcome was removed at the end of its retention

Examples:
  onceward receipts list --state unknown
  onceward receipts show acme 'POST /charges' order-7
  onceward receipts settle acme 'POST /charges' order-7 --done --status 201 --body '{\"charge\":\"ch_1\"}'
  onceward receipts release acme 'POST /charges' order-7
  onceward receipts dead list --admin http://10.0.0.5:8081

Exit code:
  0  done
  1  refused, or the gateway could not be reached; the message says why
  2  the command line cannot be understood";

/// List and show receipts, settle unknown outcomes, retry or discard what is dead.
///
/// Talks to the admin address of a running `onceward proxy` or `onceward serve`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// The admin address of the gateway, such as `http://127.0.0.1:8081` or `localhost:8081`.
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
        /// Only operations that begin like this.
        #[arg(long, value_name = "PREFIX", conflicts_with = "operation")]
        operation_prefix: Option<String>,
        /// Only this key.
        #[arg(long)]
        key: Option<String>,
        /// Only this state.
        #[arg(long, value_parser = choices::state())]
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
        /// It did not happen: the next retry runs. Refused while what was sent can still take effect.
        #[arg(long)]
        not_done: bool,
        #[command(flatten)]
        answer: AnswerGiven,
        /// With --not-done: it will not happen any more either, although what was sent could still take effect.
        #[arg(long, conflicts_with = "done")]
        force: bool,
        #[command(flatten)]
        care: Care,
    },
    /// Free the key of an effect in doubt that certainly did not happen. The same as settle --not-done.
    Release {
        #[command(flatten)]
        which: Which,
        /// It will not happen any more either, although what was sent could still take effect.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        care: Care,
    },
    /// See and decide about what was tried as often as allowed.
    #[command(subcommand)]
    Dead(Dead),
    /// Close an intent that waits for its next try: it is not run, and every retry is refused.
    Cancel {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        closing: Closing,
    },
    /// Remove the recorded answer of an intent, and keep that it is done: no retry runs, and none gets the answer.
    Erase {
        #[command(flatten)]
        which: Which,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Subcommand)]
enum Dead {
    /// List the dead, with their tries and their last errors.
    List {
        /// Only this scope.
        #[arg(long)]
        scope: Option<String>,
        /// Only this operation.
        #[arg(long)]
        operation: Option<String>,
        /// No more than this many.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: usize,
    },
    /// Have one tried again, from the first try on.
    Retry(Which),
    /// Give one up for good: it is closed, and every retry is refused.
    Discard {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        closing: Closing,
    },
}

/// How an intent is closed.
#[derive(clap::Args)]
struct Closing {
    /// How long retries are told that it was closed: http 24 hours, queue 7 days, ledger forever.
    #[arg(long, value_parser = choices::preset(), default_value = "http")]
    preset: Preset,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
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
            Command::List { scope, operation, operation_prefix, key, state, limit } => {
                let (scope, operation, key) = (scope.as_deref(), operation.as_deref(), key.as_deref());
                let operation_prefix = operation_prefix.as_deref();
                let wanted = Wanted { scope, operation, operation_prefix, key, state };
                list(&remote, wanted, limit, self.json, table::table).await
            }
            Command::Show(which) => {
                let receipt = which.find(&remote).await?;
                if self.json {
                    print_json(&receipt);
                } else {
                    print!("{}", table::card(&receipt));
                }
                Ok(())
            }
            Command::Settle { which, done, answer, force, care, .. } => {
                let done = if done { Some(answer.read()?) } else { None };
                settle(&remote, which, done, answer.preset, force, &care, self.json).await
            }
            Command::Release { which, force, care } => {
                settle(&remote, which, None, Preset::Http, force, &care, self.json).await
            }
            Command::Dead(Dead::List { scope, operation, limit }) => {
                let (scope, operation) = (scope.as_deref(), operation.as_deref());
                let wanted = Wanted { scope, operation, state: Some(State::Dead), ..Wanted::default() };
                list(&remote, wanted, limit, self.json, table::dead).await
            }
            Command::Dead(Dead::Retry(which)) => {
                remote.retry_dead(&which.into_asked()).await?;
                say(self.json, "retried", "It waits for its next try.");
                Ok(())
            }
            Command::Dead(Dead::Discard { which, closing }) => {
                let question = "It is given up for good, and every retry is refused. Discard it?";
                closing.confirm(&remote, &which, question).await?;
                remote.discard_dead(&closing.of(which)).await?;
                say(self.json, "discarded", "Discarded. Every retry is refused.");
                Ok(())
            }
            Command::Cancel { which, closing } => {
                closing
                    .confirm(&remote, &which, "It is not run, and every retry is refused. Cancel it?")
                    .await?;
                remote.cancel(&closing.of(which)).await?;
                say(self.json, "cancelled", "Cancelled. Every retry is refused.");
                Ok(())
            }
            Command::Erase { which, yes } => {
                if !yes {
                    eprint!("{}", table::card(&which.find(&remote).await?));
                    confirm("Its answer is removed for good; that it is done stays. Erase it?")?;
                }
                remote.erase(&which.into_asked()).await?;
                say(self.json, "erased", "Erased. Other processes may give the answer for another minute.");
                Ok(())
            }
        }
    }
}

async fn list(
    remote: &Remote,
    wanted: Wanted<'_>,
    limit: usize,
    json: bool,
    table: fn(&[ReceiptShown], bool) -> String,
) -> Result<(), String> {
    let (receipts, more) = remote.list(wanted, limit).await?;
    if json {
        print_json(&receipts);
    } else {
        print!("{}", table(&receipts, more));
    }
    Ok(())
}

/// What was done: for people, or for machines.
fn say(json: bool, done: &str, words: &str) {
    if json {
        println!("{{\"{done}\":true}}");
    } else {
        println!("{words}");
    }
}

impl Which {
    async fn find(&self, remote: &Remote) -> Result<ReceiptShown, String> {
        remote.show(&self.scope, &self.operation, &self.key).await
    }

    fn into_asked(self) -> IntentAsked {
        let Self { scope, operation, key } = self;
        IntentAsked { scope, operation, key }
    }
}

impl Closing {
    async fn confirm(&self, remote: &Remote, which: &Which, question: &str) -> Result<(), String> {
        if !self.yes {
            eprint!("{}", table::card(&which.find(remote).await?));
            confirm(question)?;
        }
        Ok(())
    }

    fn of(&self, which: Which) -> CloseAsked {
        let Which { scope, operation, key } = which;
        let policy = PolicyAsked { preset: self.preset, ..PolicyAsked::default() };
        CloseAsked { scope, operation, key, policy }
    }
}

pub fn confirm(question: &str) -> Result<(), String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err("standard input is no terminal, so this cannot be confirmed; add --yes".into());
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
