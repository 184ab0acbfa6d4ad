//! `onceward dead`: messages that a consumer has given up, and those that wait behind them.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use onceward::{Error, ErrorKind, Onceward, Policy, Result};
use onceward_flows::postgres::FlowTables;
use onceward_flows::{DeadLetter, DeadLetterFilter, DeadLetterState, DeadLetters};
use onceward_stores::sql::Migrations;

const AFTER_HELP: &str = "\
Examples:
  onceward dead list --store postgres://app@db/stock --source shop --consumer stock
  onceward dead list … --error timeout --older-than 3600
  onceward dead show … MESSAGE-ID
  onceward dead retry … MESSAGE-ID             # and all that wait behind it, in order
  onceward dead retry-sequence … customer-7    # the same by ordering key
  onceward dead retry … --all --error timeout --pace 50
  onceward dead discard … MESSAGE-ID
  onceward dead export … > dead.jsonl          # one JSON object a line, with payloads

A retry is done by the consumer, if it is running.

Exit code:
  0  done
  1  no such message, or it waits behind another one
  2  the database cannot be used; the message says why";

/// List, retry and discard messages that a consumer has given up.
///
/// Later messages of the same ordering key wait behind a dead one, in order, and are handled after it. Nothing is ever
/// removed by itself.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Args {
    /// The PostgreSQL database of the consumer.
    #[arg(
        long,
        value_name = "URL",
        env = "ONCEWARD_STORE",
        hide_env_values = true,
        global = true,
        default_value = ""
    )]
    store: String,

    /// The name of the consumer.
    #[arg(long, value_name = "NAME", global = true, default_value = "")]
    consumer: String,

    /// The name of its source: the stream in NATS, or `outbox`.
    #[arg(long, value_name = "NAME", global = true, default_value = "outbox")]
    source: String,

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
    /// Discard one: it will not be handled, also if a copy of it arrives within 7 days.
    Discard {
        /// The id of the message.
        message: String,
    },
    /// Print all that match as JSON, one a line.
    Export(Selection),
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
    /// Only those that failed for the last time at least this many seconds ago.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    older_than: u64,
    /// At most this many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
}

impl Selection {
    fn filter(&self) -> DeadLetterFilter {
        let mut filter = DeadLetterFilter::default().with_older_than(Duration::from_secs(self.older_than));
        filter.topic.clone_from(&self.topic);
        filter.ordering_key.clone_from(&self.key);
        filter.error.clone_from(&self.error);
        filter
    }
}

/// Makes the tables for messages.
pub async fn migrate(store: &str) -> Result<()> {
    if !store.starts_with("postgres") {
        let detail = "tables for messages are possible in PostgreSQL only; leave out --messages";
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    FlowTables::open(store).await.map(drop)
}

impl Args {
    pub async fn run(self) -> ExitCode {
        let dead = match self.open().await {
            Ok(dead) => dead,
            Err(error) => {
                eprintln!("onceward: {error}");
                return ExitCode::from(2);
            }
        };
        match run(&dead, self.command).await {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => {
                eprintln!("onceward: there is no such dead letter of this consumer");
                ExitCode::from(1)
            }
            Err(error) => {
                eprintln!("onceward: {error}");
                ExitCode::from(if error.kind() == ErrorKind::Conflict { 1 } else { 2 })
            }
        }
    }

    async fn open(&self) -> Result<DeadLetters> {
        for (value, name) in [(&self.store, "--store"), (&self.consumer, "--consumer")] {
            if value.is_empty() {
                return Err(Error::new(ErrorKind::Invalid, format!("{name} is missing")));
            }
        }
        let tables = FlowTables::open_with(&self.store, Migrations::Require).await?;
        let onceward = Onceward::new(onceward_stores::open(&self.store).await?)?;
        Ok(DeadLetters::new(tables, onceward, &self.source, &self.consumer))
    }
}

/// Returns whether what was named is there.
async fn run(dead: &DeadLetters, command: Command) -> Result<bool> {
    match command {
        Command::List(selection) => {
            let letters = dead.list(&selection.filter(), 0, selection.limit).await?;
            print!("{}", table(&letters));
            Ok(true)
        }
        Command::Show { message } => match find(dead, &message).await? {
            Some(letter) => {
                println!("{}", serde_json::to_string_pretty(&json(&letter)).expect("it is JSON"));
                Ok(true)
            }
            None => Ok(false),
        },
        Command::Retry { message: Some(message), .. } => dead.retry(&message).await,
        Command::Retry { message: None, pace, selection, .. } => {
            let count = dead.retry_all(&selection.filter(), pace).await?;
            println!("{count} will be tried again");
            Ok(true)
        }
        Command::RetrySequence { key } => {
            let filter = DeadLetterFilter::default().with_ordering_key(key);
            match dead.list(&filter, 0, 1).await?.first() {
                Some(first) => dead.retry(first.message.id()).await,
                None => Ok(false),
            }
        }
        Command::Discard { message } => dead.discard(&message, &Policy::queue()).await,
        Command::Export(selection) => {
            let (mut after, mut left) = (0, selection.limit);
            while left > 0 {
                let letters = dead.list(&selection.filter(), after, left.min(100)).await?;
                let Some(last) = letters.last() else { break };
                after = last.number;
                left -= u32::try_from(letters.len()).unwrap_or(left);
                for letter in &letters {
                    println!("{}", json(letter));
                }
            }
            Ok(true)
        }
    }
}

async fn find(dead: &DeadLetters, message: &str) -> Result<Option<DeadLetter>> {
    let mut filter = DeadLetterFilter::default();
    filter.message_id = Some(message.to_owned());
    Ok(dead.list(&filter, 0, 1).await?.pop())
}

fn table(letters: &[DeadLetter]) -> String {
    let Some(first) = letters.iter().find(|letter| letter.state == DeadLetterState::Dead) else {
        return match letters {
            [] => "No dead letters.\n".into(),
            waiting => format!("No dead letters; {} wait to be tried again.\n", waiting.len()),
        };
    };
    let mut out = format!("{:<8} {:<36} {:<20} {:>5}  ERROR\n", "STATE", "MESSAGE", "ORDERING KEY", "TRIES");
    for letter in letters {
        let key = letter.message.ordering_key().unwrap_or("");
        let error: String = letter.error.chars().filter(|char| !char.is_control()).take(100).collect();
        let (state, id) = (letter.state.name(), letter.message.id());
        let _ = writeln!(out, "{state:<8} {id:<36} {key:<20} {:>5}  {error}", letter.tries);
    }
    let begin = first.message.id();
    let _ = writeln!(
        out,
        "\nRetry or discard each when the cause is fixed. Begin with\n  onceward dead show {begin}"
    );
    out
}

fn json(letter: &DeadLetter) -> serde_json::Value {
    let message = &letter.message;
    // A payload that is not text is written in hexadecimal digits.
    let (name, payload) = match std::str::from_utf8(message.payload()) {
        Ok(text) => ("payload", text.to_owned()),
        Err(_) => ("payload_hex", hexadecimal(message.payload())),
    };
    serde_json::json!({
        "message": message.id(), "state": letter.state.name(), "topic": message.topic(),
        "ordering_key": message.ordering_key(), "headers": message.headers(), name: payload,
        "tries": letter.tries, "error": letter.error,
        "first_failed_seconds_ago": letter.first_failed.as_secs(), "last_failed_seconds_ago": letter.last_failed.as_secs(),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
