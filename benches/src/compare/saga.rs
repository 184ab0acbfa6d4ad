//! Compares a saga of two transactions with the same two transactions alone, on one PostgreSQL server: run by its caller, and
//! started for a worker; and measures how soon another worker goes on with a saga whose worker was killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::{Onceward, Worked, Worker};
use onceward_flows::{Driven, Saga, Step, StepResult};
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use tokio::sync::mpsc;

use super::postgres;
use crate::load::{callers, runtime};
use crate::process::{Missing, sibling};
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

/// Sagas at once.
const CALLERS: usize = 64;
const TABLE: &str = "CREATE TABLE business (id bigserial PRIMARY KEY, account text, amount bigint)";
const INSERT: &str = "INSERT INTO business (account, amount) VALUES ($1, 12)";
const LEASE: Duration = Duration::from_secs(1);
/// Added to the first worker's run time in each round, so that the kills hit different points of the renewal period.
const LATER: Duration = Duration::from_millis(130);

/// Measures sagas per second, and the time from a worker's SIGKILL to the next run of its step.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let probe = sibling("probe")?;
    let server = postgres::start()?;
    let (runtime, url) = (runtime(), server.database("bench"));
    server.sql("bench", TABLE);
    let onceward = runtime.block_on(postgres::open(&url));
    let transactions = PostgresTransactions::open(&url, CALLERS).unwrap();
    let saga = two_transactions(&transactions);
    let worker = Arc::new(saga.worker(&onceward).unwrap());
    let [run_here, enqueued, alone] = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
        ("sagas run", &mut |_| runtime.block_on(run_here(&onceward, &saga, scale.round))),
        ("sagas started", &mut |_| runtime.block_on(started(&onceward, &saga, &worker, scale.round))),
        ("two transactions", &mut |_| runtime.block_on(without(&transactions, scale.round))),
    ]);
    let [resumed] = Turns::new(2 * scale.rounds - 1, Unit::Leases)
        .take([("resumed", &mut |round| runtime.block_on(resume(&probe, &onceward, &url, round)).into())]);
    let rows = vec![
        Row::ratio(
            "saga of two transactions that its caller runs, PostgreSQL, 64 at once / the same two transactions alone",
            Unit::PerSecond,
            &run_here,
            &alone,
        )
        .goal(Goal::AtLeast(0.4)),
        Row::ratio(
            "the same started for a worker / the same two transactions alone",
            Unit::PerSecond,
            &enqueued,
            &alone,
        ),
        Row::alone(
            "from the worker's SIGKILL to the next run of its step, lease of 1 s",
            Unit::Leases,
            &resumed,
        )
        .goal(Goal::Below(2.0)),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

fn two_transactions(transactions: &PostgresTransactions) -> Saga {
    let write = |_: Step, tx: PostgresTx| async move {
        let statement = tx.prepare_cached(INSERT).await?;
        tx.execute(&statement, &[&"a"]).await?;
        StepResult::Ok("written")
    };
    Saga::builder("order")
        .step_in("reserve", transactions.clone(), write)
        .undo_in(transactions.clone(), write)
        .step_in("charge", transactions.clone(), write)
        .build()
        .unwrap()
}

async fn run_here(onceward: &Onceward, saga: &Saga, length: Duration) -> Turn {
    let (onceward, saga) = (onceward.clone(), saga.clone());
    let call = move |_| {
        let (onceward, saga) = (onceward.clone(), saga.clone());
        async move {
            let driven = saga.run(&onceward, &postgres::key(), "{\"account\":\"a\"}").await.unwrap();
            assert!(matches!(driven, Driven::Ended(_)), "{driven:?}");
        }
    };
    callers(CALLERS, tokio::time::sleep(length), call).await
}

async fn started(onceward: &Onceward, saga: &Saga, worker: &Arc<Worker>, length: Duration) -> Turn {
    let (onceward, saga, worker) = (onceward.clone(), saga.clone(), worker.clone());
    let call = move |_| {
        let (onceward, saga, worker) = (onceward.clone(), saga.clone(), worker.clone());
        async move {
            let key = postgres::key();
            saga.start(&onceward, &key, "{\"account\":\"a\"}").await.unwrap();
            let ended = worker.work_on(&saga.id(&key).unwrap()).await.unwrap();
            assert_eq!(ended, Worked::Finished);
        }
    };
    callers(CALLERS, tokio::time::sleep(length), call).await
}

async fn without(transactions: &PostgresTransactions, length: Duration) -> Turn {
    let transactions = transactions.clone();
    let call = move |_| {
        let transactions = transactions.clone();
        async move {
            for _ in 0..2 {
                let mut client = transactions.pool().get().await.unwrap();
                let tx = client.transaction().await.unwrap();
                let statement = tx.prepare_cached(INSERT).await.unwrap();
                tx.execute(&statement, &[&"a"]).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
    };
    callers(CALLERS, tokio::time::sleep(length), call).await
}

/// A saga whose step says that it runs.
fn told(told: mpsc::UnboundedSender<Instant>, ends: bool) -> Saga {
    let call = move |_: Step| {
        let _ = told.send(Instant::now());
        async move {
            if !ends {
                println!("runs");
                std::future::pending::<()>().await;
            }
            StepResult::Ok("called")
        }
    };
    Saga::builder("resumed").step("call", call).with_retry_unknown().with_lease(LEASE).build().unwrap()
}

/// From the kill of the process that drives a saga to the next run of its step, in leases.
async fn resume(probe: &std::path::Path, onceward: &Onceward, url: &str, round: usize) -> f64 {
    let (tell, mut ran) = mpsc::unbounded_channel();
    let saga = told(tell, true);
    saga.start(onceward, &format!("killed-{round}"), "").await.unwrap();
    let mut process = Command::new(probe).args(["saga", url]).stdout(Stdio::piped()).spawn().unwrap();
    let said = process.stdout.take().unwrap();
    let line = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).unwrap();
        line
    });
    assert_eq!(line.await.unwrap(), "runs\n", "the first worker runs the step");
    tokio::time::sleep(LATER * u32::try_from(round).unwrap()).await;
    let worker = saga.worker(onceward).unwrap();
    process.kill().unwrap();
    let killed = Instant::now();
    process.wait().unwrap();
    let at = tokio::select! {
        () = worker.run_until(std::future::pending()) => unreachable!(),
        at = ran.recv() => at.unwrap(),
    };
    at.duration_since(killed).as_secs_f64() / LEASE.as_secs_f64()
}

/// The first worker: runs the step until it is killed.
pub async fn work(url: &str) {
    let onceward = postgres::open(url).await;
    let saga = told(mpsc::unbounded_channel().0, false);
    saga.worker(&onceward).unwrap().run_until(std::future::pending()).await;
}
