//! `onceward receipts`: lists, shows and settles receipts through the receipts API of a running gateway.

pub mod admin_client;
mod audit;
mod bulk;
mod change;
pub mod explain;
mod export;
mod filter;
mod settle;
pub mod table;
mod value_parsers;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::admin::shape::{Preset, ReceiptShown, State};
use admin_client::AdminClient;
use bulk::{TargetArgs, WhoArgs};
use change::CloseArgs;
use filter::{FilterArgs, ReceiptFilter};
use settle::{AnswerArgs, ConfirmArgs, SettleCommand};

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
  onceward receipts list --scope-from 'X-Tenant: acme' --older-than 1h
  onceward receipts settle --not-done --where operation='POST /charges' --where status=504 --where younger-than=2h --dry-run
  onceward receipts erase --where scope-from='X-Tenant: acme' --reason 'privacy request 4711'
  onceward receipts dead list --admin http://10.0.0.5:8081
  onceward receipts dead export --operation 'POST /hooks/stripe' > dead.jsonl

Exit code:
  0  done
  1  refused, or the gateway could not be reached; the message says why
  2  the command line is not valid";

/// Receipts of a list, if nothing is said.
const LISTED: usize = 50;

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
        #[command(flatten)]
        filter: FilterArgs,
        /// Only this state.
        #[arg(long, value_parser = value_parsers::state())]
        state: Option<State>,
    },
    /// Show one receipt, what it means, and what to do next.
    Show(IntentArgs),
    /// Settle unknown outcomes: done or not done. Check the service first; this is not verified.
    #[command(group(clap::ArgGroup::new("found").required(true).args(["done", "not_done"])))]
    Settle {
        #[command(flatten)]
        target: TargetArgs,
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
        who: WhoArgs,
        #[command(flatten)]
        confirmation: ConfirmArgs,
    },
    /// Settle unknown outcomes as not done, which frees the key. The same as settle --not-done.
    Release {
        #[command(flatten)]
        target: TargetArgs,
        /// Settle although the request could still take effect. You are certain that it will not.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        who: WhoArgs,
        #[command(flatten)]
        confirmation: ConfirmArgs,
    },
    /// List, export, retry or discard intents whose tries are used up.
    #[command(subcommand)]
    Dead(Dead),
    /// Cancel an intent that waits for its next try: it is not run, and every retry is refused.
    Cancel {
        #[command(flatten)]
        intent: IntentArgs,
        #[command(flatten)]
        closing: CloseArgs,
        #[command(flatten)]
        who: WhoArgs,
    },
    /// Remove what receipts say: answers, inputs, errors. What is done stays done: no retry runs, and none gets the answer.
    Erase {
        #[command(flatten)]
        target: TargetArgs,
        /// Remove the receipts themselves, so that their keys are free. THE SAME INTENTS MAY RUN AGAIN.
        #[arg(long)]
        reopen: bool,
        #[command(flatten)]
        who: WhoArgs,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Show the changes that operators made, with who and why.
    Audit {
        /// No more than this many, the newest first.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: usize,
    },
}

#[derive(clap::Subcommand)]
enum Dead {
    /// List dead intents, with their number of tries and their last errors.
    List(FilterArgs),
    /// Print all that match as JSON, one a line, with what each was to do: webhooks with their fields and bodies.
    Export(FilterArgs),
    /// Try them again, with all their tries. Refused where one of the tries may have taken effect: settle it first.
    Retry {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        who: WhoArgs,
        /// Send one dead webhook under a new key, made of its event id and the number of the redrive. IT MAY TAKE EFFECT
        /// TWICE: the service knows nothing of the new key.
        #[arg(long, conflicts_with = "conditions")]
        new_key: bool,
        /// With --where or --new-key: do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Discard them permanently: they are not run, and every retry is refused.
    Discard {
        #[command(flatten)]
        target: TargetArgs,
        #[command(flatten)]
        closing: CloseArgs,
        #[command(flatten)]
        who: WhoArgs,
    },
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
        let json = self.json;
        match self.command {
            Command::List { filter, state } => {
                let limit = filter.limit.unwrap_or(LISTED);
                list(&client, &filter.into_filter(state), limit, json, table::table).await
            }
            Command::Show(intent) => {
                let receipt = intent.find(&client).await?;
                if json {
                    print_json(&receipt);
                } else {
                    print!("{}", table::details(&receipt));
                }
                Ok(())
            }
            Command::Settle { target, done, answer, force, who, confirmation, .. } => {
                let done = if done { Some(answer.read()?) } else { None };
                let settle = SettleCommand { done, preset: answer.preset, force, who };
                settle.run(&client, target.into_target(Some(State::Unknown))?, &confirmation, json).await
            }
            Command::Release { target, force, who, confirmation } => {
                let settle = SettleCommand { done: None, preset: Preset::Http, force, who };
                settle.run(&client, target.into_target(Some(State::Unknown))?, &confirmation, json).await
            }
            Command::Dead(Dead::List(filter)) => {
                let limit = filter.limit.unwrap_or(LISTED);
                list(&client, &filter.into_filter(Some(State::Dead)), limit, json, table::dead).await
            }
            Command::Dead(Dead::Export(filter)) => export::dead(&client, filter).await,
            Command::Dead(Dead::Retry { target, who, new_key: true, yes }) => {
                change::redrive_dead(&client, target, &who, yes, json).await
            }
            Command::Dead(Dead::Retry { target, who, new_key: false, yes }) => {
                change::retry_dead(&client, target, &who, yes, json).await
            }
            Command::Dead(Dead::Discard { target, closing, who }) => {
                change::discard_dead(&client, target, &closing, &who, json).await
            }
            Command::Cancel { intent, closing, who } => {
                change::cancel(&client, intent, &closing, &who, json).await
            }
            Command::Erase { target, reopen, who, yes } => {
                change::erase(&client, target, reopen, &who, yes, json).await
            }
            Command::Audit { limit } => audit::print(&client, limit, json).await,
        }
    }
}

async fn list(
    client: &AdminClient,
    filter: &ReceiptFilter,
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

    fn of(receipt: &ReceiptShown) -> Self {
        let ReceiptShown { scope, operation, key, .. } = receipt.clone();
        Self { scope, operation, key }
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
