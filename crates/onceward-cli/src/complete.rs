//! `onceward complete`: unfinished intents, and intents that wait for a worker. This binary has no code of any
//! operation, so it finishes nothing itself: it notifies the service that has the code, and reads the receipt again.

mod notifier;
mod unfinished;

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::receipt::Status;
use onceward::{Id, Onceward, Receipt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::help;
use crate::receipts::words::{quoted, time};
use crate::serve::stopped;
use notifier::Notifier;
use unfinished::{Kind, Unfinished};

/// An intent that could not be finished is left alone for this long at first, and at most; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = Duration::from_secs(600);

/// What is worth knowing, shown below the options.
const AFTER_HELP: &str = "\
An operation is left if its process died or lost its lease before the end, and no retry has come since. It is
waiting if it was enqueued, or is to be tried again, and is due. Without --to or --exec, each is listed. With one of
them, the service that has the code is told about each. It continues by asking for the same intent again, or with a
worker (`Worker::complete`): steps that were done are not repeated. A service with a worker of its own needs none of
this.

Examples:
  onceward complete --store postgres://app@db/shop
  onceward complete --store postgres://app@db/shop --operation payout --to http://payments/resume
  onceward complete --store postgres://app@db/shop --operation payout --once --exec 'resume-payout \"$ONCEWARD_KEY\"'

--to posts {\"scope\", \"operation\", \"key\", \"fence\"} as JSON, and expects 2xx when the operation is finished.
--exec runs a command with ONCEWARD_SCOPE, ONCEWARD_OPERATION, ONCEWARD_KEY and ONCEWARD_FENCE in its
environment. In both cases the receipt is read afterwards, and decides.

An intent that is in doubt and must be settled by a person is listed, and never passed on: see `onceward receipts`.
One whose tries are used up is dead, and not listed here: see `onceward receipts dead`.

Exit code, with --once or without --to and --exec:
  0  nothing is left to be done
  1  something is left, or in doubt
  2  the store could not be read";

/// List unfinished operations, or have the service that owns them finish them.
#[derive(clap::Args)]
#[command(after_long_help = help::with_durable_stores(AFTER_HELP))]
pub struct Args {
    /// Where the receipts are stored; see below.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true)]
    store: String,
    /// Only this operation, such as "payout" or "POST /payouts".
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Notifier a service about each, by a POST to this address.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), requires = "operation", conflicts_with = "exec")]
    to: Option<String>,
    /// Run a command for each, in a shell.
    #[arg(long, value_name = "COMMAND", requires = "operation")]
    exec: Option<String>,
    /// Look once and end, instead of going on until told to stop.
    #[arg(long)]
    once: bool,
    /// Leave alone what was left, or fell due, less than this long ago: for its caller's own retry, or its own worker.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// Between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pause: u64,
    /// How many are told about at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// How long one notifying may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    at_most: u64,
}

/// What became of one intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has an outcome.
    Finished,
    /// Somebody is at it.
    Running,
    /// Its key is free: the one who was told ended it without an outcome.
    Freed,
    /// It waits for its next try.
    Waiting,
    /// Its tries are used up.
    Dead,
    /// It is where it was.
    Left,
    /// It must not be run again by itself.
    InDoubt,
}

/// What a look found.
#[derive(Clone, Copy, Default)]
struct Looked {
    left: usize,
    in_doubt: usize,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        match self.complete().await {
            Ok(code) => code,
            Err(message) => {
                eprintln!("onceward: {message}");
                ExitCode::from(2)
            }
        }
    }

    async fn complete(self) -> Result<ExitCode, String> {
        let store = onceward_stores::open(&self.store).await.map_err(|error| error.to_string())?;
        let onceward = Onceward::new(store).map_err(|error| error.to_string())?;
        let at_most = Duration::from_secs(self.at_most.max(1));
        let notifier = match (&self.to, &self.exec) {
            (Some(url), _) => Notifier::post(url, at_most)?,
            (None, Some(command)) => Notifier::exec(command, at_most),
            (None, None) => return self.list(&onceward).await,
        };
        let mut completer = Completer { onceward, notifier: Arc::new(notifier), failures: HashMap::new() };
        let mut stop = std::pin::pin!(stopped());
        loop {
            let looked = tokio::select! {
                looked = completer.look(&self) => looked,
                // Who was told goes on without us, and the next one to look sees what came of it.
                () = &mut stop => return Ok(ExitCode::SUCCESS),
            };
            match looked {
                Ok(looked) if self.once => return Ok(code(looked)),
                Err(error) if self.once => return Err(error),
                Ok(_) => {}
                Err(error) => eprintln!("onceward: {error}; looking again later"),
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(self.pause.max(1))) => {}
                () = &mut stop => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    /// Prints everything that was left.
    async fn list(&self, onceward: &Onceward) -> Result<ExitCode, String> {
        let mut looked = Looked::default();
        for left in unfinished::all(onceward, self.operation.as_deref()).await? {
            looked.count(&left);
            println!("{:<9} {:>8} ago  {}", left.kind.word(), since(&left), shown(&left.id));
        }
        if looked.left + looked.in_doubt == 0 {
            println!("Nothing is left.");
        }
        if looked.in_doubt > 0 {
            println!("\n{} in doubt: see `onceward receipts` for how to settle them.", looked.in_doubt);
        }
        Ok(code(looked))
    }
}

/// Notifies of each unfinished intent, and backs off from those that stay unfinished.
struct Completer {
    onceward: Onceward,
    notifier: Arc<Notifier>,
    failures: HashMap<Id, (Instant, Duration)>,
}

impl Completer {
    /// Goes through all unfinished intents once, and prints what became of each.
    async fn look(&mut self, args: &Args) -> Result<Looked, String> {
        let mut looked = Looked::default();
        let places = Arc::new(Semaphore::new(args.concurrency.into()));
        let mut notifying = JoinSet::new();
        let all = unfinished::all(&self.onceward, args.operation.as_deref()).await?;
        // One that is not there now may be back when its lease is over; after that, it was finished elsewhere.
        self.failures.retain(|_, (until, _)| until.elapsed() < BACKOFF_MAX);
        for left in all {
            let waiting = self.failures.get(&left.id).is_some_and(|(until, _)| *until > Instant::now());
            if left.kind == Kind::InDoubt || waiting || left.ago < Duration::from_secs(args.grace) {
                looked.count(&left);
                continue;
            }
            let place = Arc::clone(&places).acquire_owned().await.map_err(|error| error.to_string())?;
            let (onceward, notifier) = (self.onceward.clone(), Arc::clone(&self.notifier));
            notifying.spawn(async move {
                let said = notifier.notify(&left).await;
                let now = onceward.receipt(&left.id).await;
                drop(place);
                (left, said, now)
            });
        }
        while let Some(notified) = notifying.join_next().await {
            let (left, said, now) = notified.map_err(|error| error.to_string())?;
            let fate = fate(now.map_err(|error| error.to_string())?.as_ref(), said.is_ok());
            let why = said.err().map_or_else(String::new, |why| format!(": {why}"));
            println!("{:<9} {}{why}", fate.word(), shown(&left.id));
            match fate {
                // Its receipt says when its next try is due.
                Fate::Waiting => looked.left += 1,
                Fate::Left => {
                    looked.left += 1;
                    self.back_off(left.id);
                }
                Fate::InDoubt | Fate::Dead => looked.in_doubt += 1,
                Fate::Finished | Fate::Running | Fate::Freed => drop(self.failures.remove(&left.id)),
            }
        }
        Ok(looked)
    }

    fn back_off(&mut self, id: Id) {
        let before = self.failures.get(&id).map(|(_, delay)| *delay);
        let delay = before.map_or(BACKOFF_MIN, |delay| (delay * 2).min(BACKOFF_MAX));
        self.failures.insert(id, (Instant::now() + delay, delay));
    }
}

impl Looked {
    fn count(&mut self, left: &Unfinished) {
        match left.kind {
            Kind::Begun | Kind::Waiting => self.left += 1,
            Kind::InDoubt => self.in_doubt += 1,
        }
    }
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Freed => "freed",
            Self::Waiting => "waiting",
            Self::Dead => "dead",
            Self::Left => "left",
            Self::InDoubt => "in doubt",
        }
    }
}

/// Who was told and could not finish it may keep its lease for a moment longer: that is not running.
fn fate(now: Option<&Receipt>, went_well: bool) -> Fate {
    match now.map(|receipt| (&receipt.status, receipt.due.is_over())) {
        None | Some((Status::Gone(_), _)) => Fate::Freed,
        Some((Status::Waiting(waiting), _)) if waiting.job.is_none() => Fate::Freed,
        // It was tried, or nobody has begun.
        Some((Status::Waiting(_), false)) => Fate::Waiting,
        Some((Status::Waiting(_), true)) => Fate::Left,
        Some((Status::Dead(_), _)) => Fate::Dead,
        Some((Status::Done(_), _)) => Fate::Finished,
        Some((Status::Unknown(_), _)) => Fate::InDoubt,
        Some((Status::Held(_), over)) if over || !went_well => Fate::Left,
        Some((Status::Held(_), _)) => Fate::Running,
    }
}

fn code(looked: Looked) -> ExitCode {
    ExitCode::from(u8::from(looked.left + looked.in_doubt > 0))
}

fn since(left: &Unfinished) -> String {
    time(i64::try_from(left.ago.as_millis()).unwrap_or(i64::MAX))
}

/// An intent as `onceward receipts` takes it back.
fn shown(id: &Id) -> String {
    [id.scope(), id.operation(), id.key()].map(quoted).join(" ")
}
