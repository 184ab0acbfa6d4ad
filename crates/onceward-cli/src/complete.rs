//! `onceward complete`: lists unfinished intents and intents that wait for a worker, or notifies the service that has
//! the code of their operation. This binary has no such code, so it finishes nothing itself; the receipt, read again
//! afterwards, says whether the service did.

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
use crate::measured_store;
use crate::receipts::explain::{duration_text, shell_quoted};
use crate::serve::stopped;
use notifier::Notifier;
use unfinished::{Unfinished, UnfinishedKind};

/// The first and the longest pause before the service is notified again of an intent that it could not finish. The
/// pause doubles each time.
const BACKOFF_MIN: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = Duration::from_secs(600);

/// Shown below the options.
const AFTER_HELP: &str = "\
An operation is left if its process died or lost its lease before the end, and no retry has come since. It is
waiting if it was enqueued, or is to be tried again, and is due. Without --to or --exec, each is listed. With one of
them, the service that has the code is notified of each. It continues by running the same intent again, or with a
worker (`Worker::work_on`): steps that were done are not repeated. A service that runs its own worker does not need
this command.

Examples:
  onceward complete --store postgres://app@db/shop
  onceward complete --store postgres://app@db/shop --operation payout --to http://payments/resume
  onceward complete --store postgres://app@db/shop --operation payout --once --exec 'resume-payout \"$ONCEWARD_KEY\"'

--to posts {\"scope\", \"operation\", \"key\", \"fence\"} as JSON, and expects 2xx when the operation is finished.
--exec runs a command with ONCEWARD_SCOPE, ONCEWARD_OPERATION, ONCEWARD_KEY and ONCEWARD_FENCE in its
environment. In both cases the receipt is read afterwards, and decides whether the operation is finished.

An intent with an unknown outcome must be settled by a person. It is listed, and the service is not notified of it:
see `onceward receipts`. An intent whose tries are used up is dead, and not listed here: see `onceward receipts dead`.

Exit code, with --once or without --to and --exec:
  0  nothing is left to be done
  1  an intent is left, or its outcome is unknown
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
    /// Notify a service of each, with a POST to this address.
    #[arg(long, value_name = "URL", value_parser = crate::address::url(), requires = "operation", conflicts_with = "exec")]
    to: Option<String>,
    /// Run a command for each, in a shell.
    #[arg(long, value_name = "COMMAND", requires = "operation")]
    exec: Option<String>,
    /// Scan once and end, instead of repeating until stopped.
    #[arg(long)]
    once: bool,
    /// Skip intents that were left, or became due, more recently than this: the caller's retry or a worker may take them.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// The pause between two scans.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pause: u64,
    /// The number of notifications at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// How long one notification may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    at_most: u64,
}

/// The state of one intent after the service was notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntentResult {
    /// It has an outcome.
    Finished,
    /// It is running.
    Running,
    /// Its key is free: the service ended it without an outcome.
    Freed,
    /// It waits for its next try.
    Waiting,
    /// Its tries are used up.
    Dead,
    /// It is still unfinished.
    Left,
    /// Its outcome is unknown, and it must be settled.
    Unknown,
}

/// The unfinished intents of one scan.
#[derive(Clone, Copy, Default)]
struct ScanCounts {
    left: usize,
    unknown: usize,
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
        let (builder, _) = measured_store::open(&self.store).await.map_err(|error| error.to_string())?;
        let onceward = builder.build().map_err(|error| error.to_string())?;
        let at_most = Duration::from_secs(self.at_most.max(1));
        let notifier = match (&self.to, &self.exec) {
            (Some(url), _) => Notifier::post(url, at_most)?,
            (None, Some(command)) => Notifier::exec(command, at_most),
            (None, None) => return self.list(&onceward).await,
        };
        let mut completer = Completer { onceward, notifier: Arc::new(notifier), failures: HashMap::new() };
        let mut stop = std::pin::pin!(stopped());
        loop {
            let counts = tokio::select! {
                counts = completer.scan(&self) => counts,
                // The service continues without us, and the next scan sees the result.
                () = &mut stop => return Ok(ExitCode::SUCCESS),
            };
            match counts {
                Ok(counts) if self.once => return Ok(code(counts)),
                Err(error) if self.once => return Err(error),
                Ok(_) => {}
                Err(error) => eprintln!("onceward: {error}; the next scan tries again"),
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(self.pause.max(1))) => {}
                () = &mut stop => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    /// Prints every unfinished intent.
    async fn list(&self, onceward: &Onceward) -> Result<ExitCode, String> {
        let mut counts = ScanCounts::default();
        for left in unfinished::all(onceward, self.operation.as_deref()).await? {
            counts.count(&left);
            println!("{:<9} {:>8} ago  {}", left.kind.word(), since(&left), shown(&left.id));
        }
        if counts.left + counts.unknown == 0 {
            println!("Nothing is left.");
        }
        if counts.unknown > 0 {
            println!("\n{} unknown: see `onceward receipts` for how to settle them.", counts.unknown);
        }
        Ok(code(counts))
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
    async fn scan(&mut self, args: &Args) -> Result<ScanCounts, String> {
        let mut counts = ScanCounts::default();
        let permits = Arc::new(Semaphore::new(args.concurrency.into()));
        let mut notifying = JoinSet::new();
        let all = unfinished::all(&self.onceward, args.operation.as_deref()).await?;
        // An intent that is not listed now may be running, and is listed again when its lease ends. Its pause is kept until then.
        self.failures.retain(|_, (until, _)| until.elapsed() < BACKOFF_MAX);
        for left in all {
            let waiting = self.failures.get(&left.id).is_some_and(|(until, _)| *until > Instant::now());
            if left.kind == UnfinishedKind::Unknown || waiting || left.ago < Duration::from_secs(args.grace) {
                counts.count(&left);
                continue;
            }
            let permit = Arc::clone(&permits).acquire_owned().await.map_err(|error| error.to_string())?;
            let (onceward, notifier) = (self.onceward.clone(), Arc::clone(&self.notifier));
            notifying.spawn(async move {
                let reply = notifier.notify(&left).await;
                let now = onceward.receipt(&left.id).await;
                drop(permit);
                (left, reply, now)
            });
        }
        while let Some(notified) = notifying.join_next().await {
            let (left, reply, now) = notified.map_err(|error| error.to_string())?;
            let result = intent_result(now.map_err(|error| error.to_string())?.as_ref(), reply.is_ok());
            let why = reply.err().map_or_else(String::new, |why| format!(": {why}"));
            println!("{:<9} {}{why}", result.word(), shown(&left.id));
            match result {
                // Its receipt says when its next try is due.
                IntentResult::Waiting => counts.left += 1,
                IntentResult::Left => {
                    counts.left += 1;
                    self.back_off(left.id);
                }
                IntentResult::Unknown | IntentResult::Dead => counts.unknown += 1,
                IntentResult::Finished | IntentResult::Running | IntentResult::Freed => {
                    self.failures.remove(&left.id);
                }
            }
        }
        Ok(counts)
    }

    fn back_off(&mut self, id: Id) {
        let before = self.failures.get(&id).map(|(_, delay)| *delay);
        let delay = before.map_or(BACKOFF_MIN, |delay| (delay * 2).min(BACKOFF_MAX));
        self.failures.insert(id, (Instant::now() + delay, delay));
    }
}

impl ScanCounts {
    fn count(&mut self, left: &Unfinished) {
        match left.kind {
            UnfinishedKind::Begun | UnfinishedKind::Waiting => self.left += 1,
            UnfinishedKind::Unknown => self.unknown += 1,
        }
    }
}

impl IntentResult {
    fn word(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Freed => "freed",
            Self::Waiting => "waiting",
            Self::Dead => "dead",
            Self::Left => "left",
            Self::Unknown => "unknown",
        }
    }
}

/// The result of a notification, from the receipt. A service that failed may keep its lease a moment longer: that does
/// not count as running.
fn intent_result(now: Option<&Receipt>, notified: bool) -> IntentResult {
    match now.map(|receipt| (&receipt.status, receipt.due.is_over())) {
        None | Some((Status::Gone(_), _)) => IntentResult::Freed,
        Some((Status::Waiting(waiting), _)) if waiting.job.is_none() => IntentResult::Freed,
        // Not due: it was tried. Due: it was not.
        Some((Status::Waiting(_), false)) => IntentResult::Waiting,
        Some((Status::Waiting(_), true)) => IntentResult::Left,
        Some((Status::Dead(_), _)) => IntentResult::Dead,
        Some((Status::Done(_), _)) => IntentResult::Finished,
        Some((Status::Unknown(_), _)) => IntentResult::Unknown,
        Some((Status::Held(_), over)) if over || !notified => IntentResult::Left,
        Some((Status::Held(_), _)) => IntentResult::Running,
    }
}

fn code(counts: ScanCounts) -> ExitCode {
    ExitCode::from(u8::from(counts.left + counts.unknown > 0))
}

fn since(left: &Unfinished) -> String {
    duration_text(i64::try_from(left.ago.as_millis()).unwrap_or(i64::MAX))
}

/// An intent as arguments of `onceward receipts`.
fn shown(id: &Id) -> String {
    [id.scope(), id.operation(), id.key()].map(shell_quoted).join(" ")
}
