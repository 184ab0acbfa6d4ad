//! `onceward receipts`: lists, shows and settles receipts through the receipts API of a running gateway.

mod admin_client;
pub mod explain;
mod settle;
mod table;
mod value_parsers;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::admin::shape::{CloseAsked, IntentAsked, PolicyAsked, Preset, ReceiptShown, State};
use admin_client::{AdminClient, ReceiptFilter};
use settle::{AnswerArgs, ConfirmArgs, settle};

const AFTER_HELP: &str = "\
States:
  waiting  no run has begun, or the next try is due later
  held     it is running
  done     the outcome is recorded, and every retry gets it; or it was closed, and every retry is refused
  unknown  it may or may not have taken effect; it is not run again until it is settled
  dead     its tries are used up; retry or discard it
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
  2  the command line is not valid";

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
    /// The admin token of the gateway, if it has one.
    #[arg(long, global = true, value_name = "TOKEN", env = "ONCEWARD_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print JSON.
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
        /// Only operations that begin with this text.
        #[arg(long, value_name = "PREFIX", conflicts_with = "operation")]
        operation_prefix: Option<String>,
        /// Only this key.
        #[arg(long)]
        key: Option<String>,
        /// Only this state.
        #[arg(long, value_parser = value_parsers::state())]
        state: Option<State>,
        /// No more than this many.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: usize,
    },
    /// Show one receipt, what it means, and what to do next.
    Show(IntentArgs),
    /// Settle an unknown outcome: done or not done. Check the service first; this is not verified.
    #[command(group(clap::ArgGroup::new("found").required(true).args(["done", "not_done"])))]
    Settle {
        #[command(flatten)]
        intent: IntentArgs,
        /// The effect happened: every retry gets the answer given here.
        #[arg(long)]
        done: bool,
        /// The effect did not happen: the next retry runs. Refused while the request can still take effect.
        #[arg(long)]
        not_done: bool,
        #[command(flatten)]
        answer: AnswerArgs,
        /// With --not-done: settle although the request could still take effect. You are certain that it will not.
        #[arg(long, conflicts_with = "done")]
        force: bool,
        #[command(flatten)]
        confirmation: ConfirmArgs,
    },
    /// Settle an unknown outcome as not done, which frees the key. The same as settle --not-done.
    Release {
        #[command(flatten)]
        intent: IntentArgs,
        /// Settle although the request could still take effect. You are certain that it will not.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirmation: ConfirmArgs,
    },
    /// List, retry or discard intents whose tries are used up.
    #[command(subcommand)]
    Dead(Dead),
    /// Cancel an intent that waits for its next try: it is not run, and every retry is refused.
    Cancel {
        #[command(flatten)]
        intent: IntentArgs,
        #[command(flatten)]
        closing: CloseArgs,
    },
    /// Remove the recorded answer of an intent. It stays done: no retry runs, and none gets the answer.
    Erase {
        #[command(flatten)]
        intent: IntentArgs,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(clap::Subcommand)]
enum Dead {
    /// List dead intents, with their number of tries and their last errors.
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
    /// Try one again, with all its tries.
    Retry(IntentArgs),
    /// Discard one permanently: it is not run, and every retry is refused.
    Discard {
        #[command(flatten)]
        intent: IntentArgs,
        #[command(flatten)]
        closing: CloseArgs,
    },
}

/// How an intent is closed.
#[derive(clap::Args)]
struct CloseArgs {
    /// How long retries are refused: http 24 hours, queue 7 days, ledger forever.
    #[arg(long, value_parser = value_parsers::preset(), default_value = "http")]
    preset: Preset,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
}

/// The intent of a receipt, as `onceward receipts list` shows it.
#[derive(clap::Args)]
struct IntentArgs {
    /// The scope: the caller.
    scope: String,
    /// The operation, such as "POST /charges".
    operation: String,
    /// The idempotency key.
    key: String,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        match self.execute().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("onceward: {message}");
                ExitCode::FAILURE
            }
        }
    }

    async fn execute(self) -> Result<(), String> {
        let client = AdminClient::new(&self.admin, self.token)?;
        match self.command {
            Command::List { scope, operation, operation_prefix, key, state, limit } => {
                let (scope, operation, key) = (scope.as_deref(), operation.as_deref(), key.as_deref());
                let operation_prefix = operation_prefix.as_deref();
                let filter = ReceiptFilter { scope, operation, operation_prefix, key, state };
                list(&client, filter, limit, self.json, table::table).await
            }
            Command::Show(intent) => {
                let receipt = intent.find(&client).await?;
                if self.json {
                    print_json(&receipt);
                } else {
                    print!("{}", table::details(&receipt));
                }
                Ok(())
            }
            Command::Settle { intent, done, answer, force, confirmation, .. } => {
                let done = if done { Some(answer.read()?) } else { None };
                settle(&client, intent, done, answer.preset, force, &confirmation, self.json).await
            }
            Command::Release { intent, force, confirmation } => {
                settle(&client, intent, None, Preset::Http, force, &confirmation, self.json).await
            }
            Command::Dead(Dead::List { scope, operation, limit }) => {
                let (scope, operation) = (scope.as_deref(), operation.as_deref());
                let filter =
                    ReceiptFilter { scope, operation, state: Some(State::Dead), ..ReceiptFilter::default() };
                list(&client, filter, limit, self.json, table::dead).await
            }
            Command::Dead(Dead::Retry(intent)) => {
                client.retry_dead(&intent.into_asked()).await?;
                report(self.json, "retried", "It waits for its next try.");
                Ok(())
            }
            Command::Dead(Dead::Discard { intent, closing }) => {
                let question = "It is not run again, and every retry is refused. Discard it?";
                closing.confirm(&client, &intent, question).await?;
                client.discard_dead(&closing.of(intent)).await?;
                report(self.json, "discarded", "Discarded. Every retry is refused.");
                Ok(())
            }
            Command::Cancel { intent, closing } => {
                closing
                    .confirm(&client, &intent, "It is not run, and every retry is refused. Cancel it?")
                    .await?;
                client.cancel(&closing.of(intent)).await?;
                report(self.json, "cancelled", "Cancelled. Every retry is refused.");
                Ok(())
            }
            Command::Erase { intent, yes } => {
                if !yes {
                    eprint!("{}", table::details(&intent.find(&client).await?));
                    confirm("Its answer is removed permanently; it stays done. Erase it?")?;
                }
                client.erase(&intent.into_asked()).await?;
                report(
                    self.json,
                    "erased",
                    "Erased. Other processes may give the answer for another minute.",
                );
                Ok(())
            }
        }
    }
}

async fn list(
    client: &AdminClient,
    filter: ReceiptFilter<'_>,
    limit: usize,
    json: bool,
    table: fn(&[ReceiptShown], bool) -> String,
) -> Result<(), String> {
    let (receipts, more) = client.list(filter, limit).await?;
    if json {
        print_json(&receipts);
    } else {
        print!("{}", table(&receipts, more));
    }
    Ok(())
}

/// Prints what was done, as text or as JSON.
fn report(json: bool, done: &str, text: &str) {
    if json {
        println!("{{\"{done}\":true}}");
    } else {
        println!("{text}");
    }
}

impl IntentArgs {
    async fn find(&self, client: &AdminClient) -> Result<ReceiptShown, String> {
        client.show(&self.scope, &self.operation, &self.key).await
    }

    fn into_asked(self) -> IntentAsked {
        let Self { scope, operation, key } = self;
        IntentAsked { scope, operation, key }
    }
}

impl CloseArgs {
    async fn confirm(&self, client: &AdminClient, intent: &IntentArgs, question: &str) -> Result<(), String> {
        if !self.yes {
            eprint!("{}", table::details(&intent.find(client).await?));
            confirm(question)?;
        }
        Ok(())
    }

    fn of(&self, intent: IntentArgs) -> CloseAsked {
        let IntentArgs { scope, operation, key } = intent;
        let policy = PolicyAsked { preset: self.preset, ..PolicyAsked::default() };
        CloseAsked { scope, operation, key, policy }
    }
}

/// Asks a question on the terminal. Fails unless the answer is yes.
pub fn confirm(question: &str) -> Result<(), String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err("standard input is not a terminal, so this cannot be confirmed; add --yes".into());
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

/// The receipt as arguments of a command.
fn shell_arguments(receipt: &ReceiptShown) -> String {
    let parts = [&receipt.scope, &receipt.operation, &receipt.key];
    let options_end = if parts.iter().any(|part| part.starts_with('-')) { "-- " } else { "" };
    format!("{options_end}{}", parts.map(|part| explain::shell_quoted(part)).join(" "))
}
