//! `onceward sagas`: lists sagas, shows every step of one, and applies what an operator decides about it. It opens the store of
//! the sagas itself, or calls the receipts API of a running process.

mod print;
mod remote;
mod stored;

use std::process::ExitCode;

use crate::admin::sagas::shape::SagaShown;
use crate::help;
use crate::receipts::admin_client::AdminClient;

const AFTER_HELP: &str = "\
Examples:
  onceward sagas list --store postgres://app@db/shop
  onceward sagas list … --needs-person
  onceward sagas list … --scope billing
  onceward sagas show … order order-81
  onceward sagas settle … order order-81 charge --done '{\"charge\":\"ch_1\"}'
  onceward sagas settle … order order-81 charge --refused 'the bank has no such charge'
  onceward sagas settle … order order-81 charge --not-done      # it is tried again
  onceward sagas settle … order order-81 charge --failed 'it was begun'   # it is undone
  onceward sagas retry … order order-81                          # its dead steps, from the first try on
  onceward sagas retry … order order-81 charge --undo            # only the undo of this one
  onceward sagas undo … order order-81 --reason 'the customer called'
  onceward sagas show … --scope billing invoice 2026-11          # one that was started in another scope than `saga`
  onceward sagas list --admin http://10.0.0.5:8081 --needs-person

What is decided here is done by the workers of the saga, if they are running.

With --admin each decision is recorded with who made it and why: see `onceward receipts audit`.

Exit code:
  0  done
  1  no such saga or step, it has ended, or it is not in a state that needs the decision; with --admin, also if the
     gateway refuses, or cannot be reached
  2  the store cannot be used; the message says why";

/// List sagas, show their steps, and decide about those that need an operator.
///
/// A saga that cannot go on by itself is listed as needs-person: the outcome of a step is unknown, or the tries of a step
/// or an undo are used up.
#[derive(clap::Args)]
#[command(after_long_help = help::with_durable_stores(AFTER_HELP))]
pub struct Args {
    /// The store of the sagas.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true, global = true)]
    store: Option<String>,

    /// The scope of the sagas [default: `list` shows all scopes; all else is about the scope `saga`].
    #[arg(long, value_name = "SCOPE", global = true)]
    scope: Option<String>,

    /// Call the admin listener at this address, such as `http://127.0.0.1:8081`, instead of opening a store.
    #[arg(long, value_name = "URL", global = true)]
    admin: Option<String>,

    /// With --admin: its admin token, if it has one.
    #[arg(long, value_name = "TOKEN", env = "ONCEWARD_ADMIN_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,

    /// With --admin: who decides [default: the name of your account].
    #[arg(long, value_name = "NAME", env = "ONCEWARD_BY", global = true)]
    by: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List sagas.
    List {
        /// Only sagas of this name.
        name: Option<String>,
        /// Only those that need an operator.
        #[arg(long)]
        needs_person: bool,
        /// Look at no more than this many receipts.
        #[arg(long, value_name = "N", default_value_t = 1_000)]
        limit: usize,
        /// Go on after the page that ended with this.
        #[arg(long, value_name = "CURSOR")]
        after: Option<String>,
    },
    /// Show one with every step: its result, tries and times.
    Show(SagaArgs),
    /// Have dead steps tried again.
    Retry {
        #[command(flatten)]
        saga: SagaArgs,
        /// Only this step.
        step: Option<String>,
        /// It is about the undo of the step.
        #[arg(long, requires = "step")]
        undo: bool,
    },
    /// Undo a saga: nothing more of it begins, and what has happened is undone.
    Undo {
        #[command(flatten)]
        saga: SagaArgs,
        /// Why, for those who look at it later.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Say what became of a step whose outcome is unknown, or that is dead.
    Settle {
        #[command(flatten)]
        saga: SagaArgs,
        /// The step.
        step: String,
        /// It is about the undo of the step.
        #[arg(long)]
        undo: bool,
        #[command(flatten)]
        end: EndArgs,
    },
}

#[derive(clap::Args)]
struct SagaArgs {
    /// The name of the saga.
    name: String,
    /// The key that it was started under.
    key: String,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct EndArgs {
    /// It happened, and this is its result.
    #[arg(long, value_name = "RESULT")]
    done: Option<String>,
    /// The participant refused it: nothing happened, and it is not to be tried again.
    #[arg(long, value_name = "REASON")]
    refused: Option<String>,
    /// It ended without what was asked, and something may have happened: it is undone.
    #[arg(long, value_name = "REASON")]
    failed: Option<String>,
    /// It did not happen; it is tried again.
    #[arg(long)]
    not_done: bool,
    /// It did not happen and will not, also where what was sent could still take effect.
    #[arg(long)]
    force_not_done: bool,
}

/// What a command could not do.
enum Stop {
    /// The message says why: nothing was changed.
    Refused(String),
    /// The store cannot be used.
    Failed(String),
}

impl Args {
    pub async fn run(self) -> ExitCode {
        let ended = match &self.admin {
            Some(url) => match AdminClient::new(url, self.token) {
                Ok(client) => {
                    let account = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
                    remote::run(&client, self.scope.as_deref(), self.by.or_else(account), self.command).await
                }
                Err(message) => Err(Stop::Failed(message)),
            },
            None => match help::required(self.store.as_deref(), "--store") {
                Ok(store) => stored::run(store, self.scope.as_deref(), self.command).await,
                Err(missing) => Err(Stop::Failed(missing.to_string())),
            },
        };
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(Stop::Refused(message)) => {
                eprintln!("onceward: {message}");
                ExitCode::from(1)
            }
            Err(Stop::Failed(message)) => {
                eprintln!("onceward: {message}");
                ExitCode::from(2)
            }
        }
    }
}

/// Prints one page of sagas, and how to go on.
fn print_page(sagas: &[SagaShown], next: Option<String>) {
    print!("{}", print::table(sagas));
    if let Some(next) = next {
        println!("\nThere are more: --after {next}");
    }
}
