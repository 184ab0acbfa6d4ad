//! A payout in three phases whose process is killed at every point of it, on every engine: two completers
//! side by side finish each, and nothing is done twice.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Ask, Completer, Fingerprint, Id, Lease, Onceward, Outcome, Pace, Policy, State, Stopped, Store,
    Transactions,
};
use onceward_stores::sql::SqlTransaction;
use onceward_stores::sql::mysql::MySqlTransactions;
use onceward_stores::sql::postgres::PostgresTransactions;
use onceward_stores::sql::sqlite::SqliteTransactions;

use crate::bank::{Bank, MySqlBank, PostgresBank, SqliteBank, on_every_engine};

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
    Arc::new(Policy::queue().lease(Duration::from_secs(2)).unwrap())
}

fn id(key: &str) -> Id {
    Id::new("tenant", "payout", key).unwrap()
}

/// The code of the operation: the same for who was asked and for who completes.
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
        lease.step_in(&self.transactions, "reserve", |_, tx| write("reserved", tx)).await?.ran()?;
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
        lease.step("transfer", call).await?.ran()?;
        self.perhaps(Dies::Transferred).await;
        lease.step_in(&self.transactions, "confirm", |_, tx| write("confirmed", tx)).await?.ran()?;
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
    let Ok(url) = std::env::var("COMPLETER_CHILD_URL") else { return };
    let [key, calls] = ["KEY", "CALLS"].map(|name| std::env::var(format!("COMPLETER_CHILD_{name}")).unwrap());
    let dies = POINTS.into_iter().find(|point| key == format!("{point:?}")).unwrap();
    let store = onceward_stores::open(&url).await.unwrap();
    let calls = PathBuf::from(calls);
    match url.split_once(':').unwrap() {
        ("postgres", _) => ask(store, PostgresTransactions::open(&url, 4).unwrap(), calls, dies).await,
        ("mysql", _) => ask(store, MySqlTransactions::open(&url, 4).unwrap(), calls, dies).await,
        (_, path) => ask(store, SqliteTransactions::open(path), calls, dies).await,
    }
}

async fn ask<T: Transactions<Tx: SqlTransaction>>(
    store: Arc<dyn Store>,
    transactions: T,
    calls: PathBuf,
    dies: Dies,
) {
    let payout = Payout { transactions, calls, dies };
    let onceward = Onceward::new(store).unwrap();
    let id = id(&format!("{dies:?}"));
    // On a machine under load a lease may be lost on the way; it is the death that is waited for.
    loop {
        let ask = Ask::new(id.clone(), Fingerprint::of(b"12"), policy());
        let _ = onceward.run(ask, |lease| payout.run(lease)).await;
    }
}

fn killed(url: &str, calls: &Path, dies: Dies) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "completer::child"]).stdout(Stdio::null()).stderr(Stdio::null());
    child.env("COMPLETER_CHILD_URL", url).env("COMPLETER_CHILD_CALLS", calls);
    let status = child.env("COMPLETER_CHILD_KEY", format!("{dies:?}")).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{dies:?}: {status}");
}

async fn every_death_is_mended<B: Bank>(bank: &B) {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    for dies in POINTS {
        killed(&bank.url(), &calls, dies);
    }
    let mut completers = Vec::new();
    for _ in 0..2 {
        let onceward = Onceward::new(onceward_stores::open(&bank.url()).await.unwrap()).unwrap();
        let (transactions, calls) = (bank.transactions().await, calls.clone());
        let payout = Arc::new(Payout { transactions, calls, dies: Dies::Never });
        let work = move |lease| {
            let payout = Arc::clone(&payout);
            async move { payout.run(lease).await }
        };
        let pause = Duration::from_millis(20);
        let pace = Pace { grace: Duration::ZERO, pause, backoff_min: pause, ..Pace::default() };
        let completer =
            Completer::new(onceward.clone()).operation("payout", policy(), work).unwrap().pace(pace);
        completers.push((onceward, completer));
    }
    let all_done = async |onceward: &Onceward| {
        for dies in POINTS {
            let id = id(&format!("{dies:?}"));
            while onceward
                .show(&id)
                .await
                .unwrap()
                .is_none_or(|receipt| receipt.status.state() != State::Done)
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let [(one, first), (two, second)] = &completers[..] else { unreachable!("there are two") };
    tokio::join!(first.run_until(all_done(one)), second.run_until(all_done(two)));
    // Whoever had the last word for an intent, one of them did.
    assert!(first.counts().finished + second.counts().finished >= POINTS.len() as u64);
    let calls = std::fs::read_to_string(&calls).unwrap();
    for dies in POINTS {
        for phase in ["reserved", "confirmed"] {
            assert_eq!(bank.count(&format!("{phase} {dies:?}")), 1, "{dies:?}");
        }
        // The foreign service is asked again only where nobody knew its answer, and under the same key.
        let mut made: Vec<&str> =
            calls.lines().filter(|line| line.starts_with(&format!("{dies:?} "))).collect();
        let again = usize::from(dies == Dies::Called);
        assert!(made.len() > again, "{dies:?}: {made:?}");
        made.dedup();
        assert_eq!(made.len(), 1, "{dies:?}");
    }
}

on_every_engine!(every_death_is_mended: postgres PostgresBank, mysql MySqlBank, sqlite SqliteBank);
