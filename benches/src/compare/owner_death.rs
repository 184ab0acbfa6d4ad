//! Measures failover: the process that runs a request is killed with SIGKILL, and another process waits to run it.
//! The wait is at most what is left of the lease, plus the time to notice its end.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::{Ask, Fingerprint, Id, OnUnknown, Onceward, Outcome, Policy};
use onceward_stores::PostgresStore;
use onceward_stores::sql::Options;

use crate::load::runtime;
use crate::process::{Missing, sibling};
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::servers::Postgres;
use crate::turns::Turns;

const LEASE: Duration = Duration::from_secs(1);
/// Added to the owner's run time in each round, so that the kills hit different points of the renewal period.
const LATER: Duration = Duration::from_millis(130);

/// Measures the time from the kill to the next run, in leases.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let probe = sibling("probe")?;
    let server = Postgres::start()
        .ok_or_else(|| Missing("PostgreSQL is not installed (package postgresql)".into()))?;
    let (runtime, url) = (runtime(), server.database("bench"));
    let onceward = runtime.block_on(open(&url));
    let lease_ms = LEASE.as_millis().to_string();
    let rounds = 2 * scale.rounds - 1;
    let [waited] = Turns::new(rounds, Unit::Leases).take([("waited", &mut |round| {
        let key = format!("owned-{round}");
        let mut owner = Command::new(&probe)
            .args(["hold", &url, &lease_ms, &key])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n", "the owner holds its claim");
        runtime.block_on(async {
            let before = onceward.counts().waits_remote;
            let begun = async |_| Ok(Outcome::succeeded(Vec::new()));
            let waiter = tokio::spawn({
                let onceward = onceward.clone();
                async move {
                    let ran = onceward.run(ask(&key, LEASE), begun).await.unwrap().into_result().unwrap();
                    assert!(!ran.replayed, "the owner never ends");
                    Instant::now()
                }
            });
            while onceward.counts().waits_remote == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(LATER * u32::try_from(round).unwrap()).await;
            owner.kill().unwrap();
            let killed = Instant::now();
            owner.wait().unwrap();
            let leases = waiter.await.unwrap().duration_since(killed).as_secs_f64() / LEASE.as_secs_f64();
            leases.into()
        })
    })]);
    let what = "from the owner's SIGKILL to the waiter's answer";
    let rows = vec![Row::alone(what, Unit::Leases, &waited).goal(Goal::AtMost(1.5))];
    Ok(Findings { rows, ..Findings::default() })
}

/// The owner: claims, says so, and runs until it is killed.
pub async fn hold(store: &str, lease_ms: u64, key: &str) {
    let onceward = open(store).await;
    let work = async |_| {
        println!("held");
        std::future::pending::<()>().await;
        Ok(Outcome::succeeded(Vec::new()))
    };
    onceward.run(ask(key, Duration::from_millis(lease_ms)), work).await.unwrap();
}

async fn open(url: &str) -> Onceward {
    Onceward::new(Arc::new(PostgresStore::open(url, Options::default()).await.unwrap())).unwrap()
}

fn ask(key: &str, lease: Duration) -> Ask {
    let policy =
        Policy::http().to_builder().with_lease(lease).with_on_unknown(OnUnknown::Retry).build().unwrap();
    Ask::new(Id::new("tenant", "POST /charges", key).unwrap(), Fingerprint::of(b""), Arc::new(policy))
}
