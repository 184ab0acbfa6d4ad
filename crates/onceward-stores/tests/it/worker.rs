//! Workers on every engine: a payout in three phases whose process is killed at every point of it is finished by two
//! of them side by side, and nothing is done twice; and so is what was enqueued.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::{Job, Status};
use onceward::{
    Answer, Ask, Backoff, Changed, Closed, Enqueued, Fingerprint, Id, Lease, Onceward, Outcome, Policy,
    Refusal, State, Stopped, Store, Transactions, Worked, Worker, WorkerOptions,
};
use onceward_stores::sql::SqlTransaction;
use onceward_stores::sql::mysql::MySqlTransactions;
use onceward_stores::sql::postgres::PostgresTransactions;
use onceward_stores::sql::sqlite::SqliteTransactions;

use crate::bank::{
    Bank, MySqlBank, PostgresBank, Process, Round, SqliteBank, Tx, ask, on_every_engine, said,
};

/// Where a process dies: before the first phase, after each, and between a foreign call and its receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Never,
    AtOnce,
    Reserved,
    Called,
    Transferred,
    Confirmed,
}

const POINTS: [Dies; 5] = [Dies::AtOnce, Dies::Reserved, Dies::Called, Dies::Transferred, Dies::Confirmed];

fn policy() -> Arc<Policy> {
    let pause = Duration::from_millis(10);
    let backoff = Backoff::new(pause, pause);
    let policy = Policy::queue()
        .to_builder()
        .with_lease(Duration::from_secs(2))
        .with_backoff(backoff)
        .build()
        .unwrap();
    // On a machine under load a lease may be lost on the way.
    Arc::new(policy.to_builder().with_tries_max(100).build().unwrap())
}

fn options() -> WorkerOptions {
    WorkerOptions::default().with_grace(Duration::ZERO).with_pause(Duration::from_millis(20))
}

fn id(key: &str) -> Id {
    Id::new("tenant", "payout", key).unwrap()
}

/// The code of the operation: the same for the process that was asked and for workers.
#[derive(Clone)]
struct Payout<T> {
    transactions: T,
    /// Of the foreign service: a line for each call, with the key that it was made under.
    calls: PathBuf,
    dies: Dies,
}

impl<T> Payout<T>
where
    T: Transactions<Tx: SqlTransaction>,
{
    async fn run(&self, lease: Lease) -> Result<Outcome, Stopped> {
        let key = lease.id().key().to_owned();
        let write = async |phase: &str, mut tx: T::Tx| {
            tx.fetch(&format!("INSERT INTO charges VALUES ('{phase} {key}')"), &[]).await?;
            Ok(Outcome::succeeded(phase.to_owned()))
        };
        self.perhaps(Dies::AtOnce).await;
        lease.step_in(&self.transactions, "reserve", |_, tx| write("reserved", tx)).await?.into_result()?;
        self.perhaps(Dies::Reserved).await;
        let call = async |step: Lease| {
            let line = format!("{key} {}\n", step.child("transfer")?);
            std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(&self.calls)?
                .write_all(line.as_bytes())?;
            self.perhaps(Dies::Called).await;
            Ok(Outcome::succeeded("transferred"))
        };
        lease.step("transfer", call).await?.into_result()?;
        self.perhaps(Dies::Transferred).await;
        lease.step_in(&self.transactions, "confirm", |_, tx| write("confirmed", tx)).await?.into_result()?;
        self.perhaps(Dies::Confirmed).await;
        Ok(Outcome::succeeded("paid out"))
    }

    /// Here, or not at all.
    async fn perhaps(&self, point: Dies) {
        if self.dies == point {
            let me = std::process::id().to_string();
            let _ = Command::new("kill").args(["-KILL", &me]).status();
            std::future::pending::<()>().await;
        }
    }
}

/// Runs in a process of its own; under plain test runs it has nothing to do.
#[tokio::test]
async fn child() {
    let Ok(url) = std::env::var("WORKER_CHILD_URL") else { return };
    let [key, calls] = ["KEY", "CALLS"].map(|name| std::env::var(format!("WORKER_CHILD_{name}")).unwrap());
    let dies = POINTS.into_iter().find(|point| key == format!("{point:?}")).unwrap();
    let store = onceward_stores::open(&url).await.unwrap();
    let calls = PathBuf::from(calls);
    match url.split_once(':').unwrap() {
        ("postgres", _) => run(store, PostgresTransactions::open(&url, 4).unwrap(), calls, dies).await,
        ("mysql", _) => run(store, MySqlTransactions::open(&url, 4).unwrap(), calls, dies).await,
        (_, path) => run(store, SqliteTransactions::open(path), calls, dies).await,
    }
}

async fn run<T: Transactions<Tx: SqlTransaction>>(
    store: Arc<dyn Store>,
    transactions: T,
    calls: PathBuf,
    dies: Dies,
) {
    let payout = Payout { transactions, calls, dies };
    let onceward = Onceward::new(store).unwrap();
    let id = id(&format!("{dies:?}"));
    // On a machine under load a lease may be lost on the way; the test waits for the crash.
    loop {
        let ask = Ask::new(id.clone(), Fingerprint::of(b"12"), policy());
        let _ = onceward.run(ask, |lease| payout.run(lease)).await;
    }
}

fn killed(url: &str, calls: &Path, dies: Dies) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "worker::child"]).stdout(Stdio::null()).stderr(Stdio::null());
    child.env("WORKER_CHILD_URL", url).env("WORKER_CHILD_CALLS", calls);
    let status = child.env("WORKER_CHILD_KEY", format!("{dies:?}")).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{dies:?}: {status}");
}

async fn every_death_is_made_good<B: Bank>(bank: &B) {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    for dies in POINTS {
        killed(&bank.url(), &calls, dies);
    }
    let mut workers = Vec::new();
    for _ in 0..2 {
        let onceward = Onceward::new(onceward_stores::open(&bank.url()).await.unwrap()).unwrap();
        let (transactions, calls) = (bank.transactions().await, calls.clone());
        let payout = Arc::new(Payout { transactions, calls, dies: Dies::Never });
        let work = move |lease| {
            let payout = Arc::clone(&payout);
            async move { payout.run(lease).await }
        };
        let worker = Worker::builder(onceward.clone())
            .with_operation("payout", policy(), work)
            .with_options(options())
            .build()
            .unwrap();
        workers.push((onceward, worker));
    }
    let all_done = async |onceward: &Onceward| {
        for dies in POINTS {
            let id = id(&format!("{dies:?}"));
            while onceward
                .receipt(&id)
                .await
                .unwrap()
                .is_none_or(|receipt| receipt.status.state() != State::Done)
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let [(one, first), (two, second)] = &workers[..] else { unreachable!("there are two") };
    tokio::join!(first.run_until(all_done(one)), second.run_until(all_done(two)));
    // Whichever of them finished an intent.
    assert!(first.counts().finished + second.counts().finished >= POINTS.len() as u64);
    let calls = std::fs::read_to_string(&calls).unwrap();
    for dies in POINTS {
        for phase in ["reserved", "confirmed"] {
            assert_eq!(bank.count(&format!("{phase} {dies:?}")), 1, "{dies:?}");
        }
        // The foreign service is called again only if its answer was unknown, and under the same key.
        let mut made: Vec<&str> =
            calls.lines().filter(|line| line.starts_with(&format!("{dies:?} "))).collect();
        let again = usize::from(dies == Dies::Called);
        assert!(made.len() > again, "{dies:?}: {made:?}");
        made.dedup();
        assert_eq!(made.len(), 1, "{dies:?}");
    }
}

on_every_engine!(every_death_is_made_good: postgres PostgresBank, mysql MySqlBank, sqlite SqliteBank);

/// What a transaction enqueues is there when it commits, and never if it does not; and of two workers that want it,
/// one does it.
async fn what_is_enqueued_is_done_once<B: Bank>(bank: &B) {
    let (one, two) = (Process::new(bank, "one").await, Process::new(bank, "two").await);
    let id = ask("enqueued").id().clone();
    bank.in_a_transaction_of_the_callers_own(&one, Round::EnqueuedAndUndone).await;
    assert_eq!(one.onceward.receipt(&id).await.unwrap(), None);
    bank.in_a_transaction_of_the_callers_own(&one, Round::EnqueuedAndKept).await;
    bank.in_a_transaction_of_the_callers_own(&one, Round::FoundWaiting).await;
    let receipt = one.onceward.receipt(&id).await.unwrap().expect("it was committed");
    assert_eq!(receipt.status.job().map(|job| &job.input[..]), Some(&b"12"[..]));
    // Others, enqueued without a transaction of the caller's.
    let others: Vec<String> = (0..20).map(|number| format!("other-{number}")).collect();
    for key in &others {
        assert_eq!(one.onceward.enqueue(ask(key).with_input("12")).await.unwrap(), Enqueued::Accepted);
    }

    let keys: Vec<String> = others.into_iter().chain(["enqueued".into()]).collect();
    let all_done = async |process: &Process<B>| {
        for key in &keys {
            while state(process, key).await != Some(State::Done) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    let (first, second) = (charger(&one), charger(&two));
    tokio::join!(first.run_until(all_done(&one)), second.run_until(all_done(&two)));
    assert_eq!(first.counts().finished + second.counts().finished, keys.len() as u64);
    for key in &keys {
        assert_eq!(bank.count(key), 1, "{key}");
        // The input is removed with the completion, and an ask is answered with the outcome.
        let receipt = one.onceward.receipt(ask(key).id()).await.unwrap().expect("it is done");
        assert_eq!(receipt.status.job(), None);
        let answer = one.charge(ask(key)).await;
        assert_eq!(said(answer), ("charged 12".into(), true), "{key}");
    }
}

async fn state<B: Bank>(process: &Process<B>, key: &str) -> Option<State> {
    process.onceward.receipt(ask(key).id()).await.unwrap().map(|receipt| receipt.status.state())
}

/// Charges what it is given, in a transaction with the receipt.
fn charger<B: Bank>(process: &Process<B>) -> Worker {
    let transactions = process.transactions.clone();
    let work = move |lease: Lease| {
        let transactions = transactions.clone();
        async move {
            let (key, amount) = (lease.id().key().to_owned(), lease.input().cloned().unwrap_or_default());
            let charge = async |tx: Tx<B>| {
                B::charge(&tx, &key).await?;
                Ok(Outcome::succeeded([b"charged ", &amount[..]].concat()))
            };
            Ok(lease.transact(&transactions, charge).await?.outcome)
        }
    };
    Worker::builder(process.onceward.clone())
        .with_operation("charge", policy(), work)
        .with_options(options())
        .build()
        .unwrap()
}

/// Tries and the last error are in the receipt, so that every process sees them; used up, it is dead.
async fn what_keeps_failing_is_dead<B: Bank>(bank: &B) {
    let (one, two) = (Process::new(bank, "one").await, Process::new(bank, "two").await);
    let policy = Arc::new(policy().to_builder().with_tries_max(3).build().unwrap());
    let ask = Ask::new(ask("fails").id().clone(), Fingerprint::of(b"12"), policy.clone()).with_input("12");
    let id = ask.id().clone();
    one.onceward.enqueue(ask.clone()).await.unwrap();
    let fails = |process: &Process<B>| {
        let work =
            async |lease: Lease| Err(Stopped::before_effect(format!("no money at try {}", lease.tries())));
        Worker::builder(process.onceward.clone())
            .with_operation("charge", policy.clone(), work)
            .build()
            .unwrap()
    };
    let workers = [fails(&one), fails(&two)];
    for tried in 1..=3 {
        let done = workers[tried % 2].work_on(&id).await.unwrap();
        let receipt = one.onceward.receipt(&id).await.unwrap().expect("it stays");
        let Job { started, finished, note, input, .. } = &**receipt.status.job().expect("it is kept");
        assert_eq!((usize::from(*started), usize::from(*finished)), (tried, tried));
        assert_eq!(
            (&input[..], note.contains(&format!("no money at try {tried}"))),
            (&b"12"[..], true),
            "{note}"
        );
        match &receipt.status {
            Status::Waiting(_) => assert!(tried < 3 && matches!(done, Worked::Failed(_)), "{done:?}"),
            Status::Dead(_) => assert_eq!((tried, done), (3, Worked::Dead)),
            status => panic!("{status:?}"),
        }
    }
    let refused = two.onceward.answer_without_running(&ask).await.unwrap();
    assert!(
        matches!(&refused, Some(Answer::Refused(Refusal::Dead { note })) if note.contains("try 3")),
        "{refused:?}"
    );
    // An operator has it retried, and then changes their mind.
    assert_ne!(two.onceward.cancel(&id, &policy).await.unwrap(), Changed::Applied);
    assert_eq!(two.onceward.retry_dead(&id).await.unwrap(), Changed::Applied);
    assert_eq!(state(&one, "fails").await, Some(State::Waiting));
    assert_eq!(two.onceward.cancel(&id, &policy).await.unwrap(), Changed::Applied);
    assert_eq!(workers[0].work_on(&id).await.unwrap(), Worked::NothingToDo);
    let refused = one.charge(ask).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::Closed(Closed::Cancelled)));
    assert_eq!(bank.count("fails"), 0);
}

mod enqueued {
    use super::what_is_enqueued_is_done_once;

    crate::bank::on_every_engine!(what_is_enqueued_is_done_once);
}

mod dead {
    use super::what_keeps_failing_is_dead;

    crate::bank::on_every_engine!(what_keeps_failing_is_dead);
}
