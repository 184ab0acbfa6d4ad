//! `onceward dead`: messages that a consumer has given up, and those that wait behind them.

mod print;
mod remote;
mod stored;

use std::process::ExitCode;
use std::time::Duration;

use onceward::Result;
use onceward_flows::FlowTables;

use crate::admin::dead_letters::shape::{DeadLetterShown, SOURCE};
use crate::config::Period;
use crate::help;
use crate::receipts::admin_client::AdminClient;

const AFTER_HELP: &str = "\
Examples:
  onceward dead list --store postgres://app@db/stock       # of all consumers of the database
  onceward dead list --store postgres://app@db/stock --source shop --consumer stock
  onceward dead list … --error timeout --older-than 1h
  onceward dead show … MESSAGE-ID
  onceward dead retry … MESSAGE-ID             # and all that wait behind it, in order
  onceward dead retry-sequence … customer-7    # the same by ordering key
  onceward dead retry … --all --error timeout --pace 50
  onceward dead settle … MESSAGE-ID            # it was handled by other means
  onceward dead discard … MESSAGE-ID
  onceward dead discard … --all --topic orders.test
  onceward dead export … > dead.jsonl          # one JSON object a line, with payloads
  onceward dead list --admin http://10.0.0.5:8081 --consumer stock   # of a process that has the database as its store

A retry is done by the consumer, if it is running.

Exit code:
  0  done
  1  no such message, or it waits behind another one; with --admin, also if the gateway refuses, or cannot be reached
  2  the database cannot be used; the message says why";

/// Letters of a list, if nothing is said.
const LISTED: u32 = 100;

/// List, retry and discard messages that a consumer has given up.
///
/// Later messages of the same ordering key wait behind a dead one, in order, and are handled after it. Nothing is ever
/// removed by itself.
#[derive(clap::Args)]
#[command(after_long_help = help::with_databases(AFTER_HELP))]
pub struct Args {
    /// The database of the consumer: PostgreSQL, MySQL, MariaDB or SQLite.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true, global = true)]
    store: Option<String>,

    /// The name of the consumer. Without it `list` and `export` are about all consumers of the database.
    #[arg(long, value_name = "NAME", global = true)]
    consumer: Option<String>,

    /// The name of its source: the stream in NATS, or `outbox` [default: outbox].
    #[arg(long, value_name = "NAME", global = true)]
    source: Option<String>,

    /// Call the admin listener at this address, such as `http://127.0.0.1:8081`, instead of opening a database.
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
    /// List them, in their order.
    List(Selection),
    /// Show one, with its headers and payload.
    Show {
        /// The id of the message.
        message: String,
    },
    /// Have one tried again, and all that wait behind it.
    Retry {
        /// The id of the message.
        #[arg(required_unless_present = "all")]
        message: Option<String>,
        /// Retry all dead letters that match.
        #[arg(long, conflicts_with = "message")]
        all: bool,
        /// With --all: only count them.
        #[arg(long, requires = "all")]
        dry_run: bool,
        /// With --all: at most this many in a second.
        #[arg(long, value_name = "N", default_value_t = 50)]
        pace: u32,
        #[command(flatten)]
        selection: Selection,
    },
    /// Have everything of an ordering key tried again, in order.
    RetrySequence {
        /// The ordering key.
        key: String,
    },
    /// Record one as handled: its effect was brought about by other means. Copies of it are then recognised.
    Settle(Chosen),
    /// Discard one: it will not be handled, also if a copy of it arrives within 7 days.
    Discard(Chosen),
    /// Print all that match as JSON, one a line.
    Export(Selection),
}

/// One dead letter, or all that match.
#[derive(clap::Args)]
struct Chosen {
    /// The id of the message.
    #[arg(required_unless_present = "all")]
    message: Option<String>,
    /// All dead letters that match.
    #[arg(long, conflicts_with = "message")]
    all: bool,
    /// With --all: only count them.
    #[arg(long, requires = "all")]
    dry_run: bool,
    #[command(flatten)]
    selection: Selection,
}

/// Which dead letters.
#[derive(clap::Args)]
struct Selection {
    /// Only those with this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only those with this ordering key.
    #[arg(long)]
    key: Option<String>,
    /// Only those whose error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those that failed for the last time at least this long ago, like 1h.
    #[arg(long, value_name = "TIME")]
    older_than: Option<Period>,
    /// At most this many; `list` shows 100 if nothing is said, and everything else takes all.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

impl Selection {
    fn older_than(&self) -> Duration {
        self.older_than.map_or(Duration::ZERO, |Period(age)| age)
    }
}

/// Makes the tables for messages.
pub async fn migrate(store: &str) -> Result<()> {
    FlowTables::open(store).await.map(drop)
}

/// What a command could not do.
enum Stop {
    /// The message says why: nothing was changed.
    Refused(String),
    /// The database cannot be used.
    Failed(String),
}

/// Whose dead letters. Without one: those of all consumers.
struct Whose {
    source: String,
    consumer: String,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        let required = |value, name| help::required(value, name).map(str::to_owned);
        let store =
            if self.admin.is_some() { Ok(String::new()) } else { required(self.store.as_deref(), "--store") };
        let is_of_all =
            self.source.is_none() && matches!(self.command, Command::List(_) | Command::Export(_));
        let whose = match required(self.consumer.as_deref(), "--consumer") {
            Ok(consumer) => {
                let source = self.source.unwrap_or_else(|| SOURCE.to_owned());
                Ok(Some(Whose { source, consumer }))
            }
            Err(_) if is_of_all => Ok(None),
            Err(missing) => Err(missing),
        };
        let (store, whose) = match (store, whose) {
            (Ok(store), Ok(whose)) => (store, whose),
            (Err(missing), _) | (_, Err(missing)) => return Stop::Failed(missing.to_string()).told(),
        };
        let ended = match &self.admin {
            Some(url) => match AdminClient::new(url, self.token) {
                Ok(client) => {
                    let account = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
                    let by = self.by.or_else(account);
                    remote::Remote { client, whose, by }.run(self.command).await
                }
                Err(message) => Err(Stop::Failed(message)),
            },
            None => stored::run(&store, whose.as_ref(), self.command).await,
        };
        ended.map_or_else(Stop::told, |()| ExitCode::SUCCESS)
    }
}

impl Stop {
    fn told(self) -> ExitCode {
        let (message, code) = match self {
            Self::Refused(message) => (message, 1),
            Self::Failed(message) => (message, 2),
        };
        eprintln!("onceward: {message}");
        ExitCode::from(code)
    }
}

/// Prints what a list has, and whether it was cut. One of all consumers says whose each is.
fn print_list(letters: &[DeadLetterShown], is_of_all: bool, is_cut: bool) {
    print!("{}", if is_of_all { print::table_of_all(letters) } else { print::table(letters) });
    if is_cut {
        println!("There are more; see --limit.");
    }
}
