//! Compares the PostgreSQL store and transactions with hand-written SQL, on one server with its default durability.

mod by_hand;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy};
use onceward_stores::PostgresStore;
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};

use crate::load::{callers, runtime};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::servers::Postgres;
use crate::turns::{Turn, Turns};
use by_hand::Hands;

const CALLERS: usize = 512;
const TRANSACTIONS: usize = 16;
const ANSWER: &str = "{\"id\":81,\"status\":\"charged\"}";
const BUSINESS: &str = "INSERT INTO business (account, amount) VALUES ($1, 12)";

/// Measures claims by many callers, transactions, and one caller alone.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let server = start()?;
    let (runtime, url) = (runtime(), server.database("bench"));
    server.sql("bench", by_hand::TABLES);
    let onceward = runtime.block_on(open(&url));
    let transactions = PostgresTransactions::open(&url, TRANSACTIONS).unwrap();
    let hands = runtime.block_on(Hands::connect(&url, TRANSACTIONS));
    let alone = runtime.block_on(Hands::connect(&url, 1));
    let turns = || Turns::new(scale.rounds, Unit::PerSecond);

    let [many, pgbench] = turns().after_warm_up().take([
        ("engine", &mut |_| runtime.block_on(claims(&onceward, CALLERS, scale.round))),
        ("pgbench", &mut |_| by_hand::pgbench(&server, scale.round).into()),
    ]);
    let [keyed, bare, hand] = turns().after_warm_up().take([
        ("transact", &mut |_| runtime.block_on(transact(&onceward, &transactions, scale.round))),
        ("without a key", &mut |_| runtime.block_on(hands.rate(scale.round, by_hand::business))),
        ("key by hand", &mut |_| runtime.block_on(hands.rate(scale.round, by_hand::same_transaction))),
    ]);
    let [one, one_hand] = turns().take([
        ("engine, alone", &mut |_| runtime.block_on(claims(&onceward, 1, scale.round))),
        ("by hand, alone", &mut |_| runtime.block_on(alone.rate(scale.round, by_hand::two_commits))),
    ]);
    let ratio =
        |what, ours, other, least| Row::ratio(what, Unit::PerSecond, ours, other).goal(Goal::AtLeast(least));
    let rows = vec![
        ratio("claim + complete, 512 callers / by hand, pgbench with 64", &many, &pgbench, 5.0),
        ratio("transact, 16 callers / the same without a key", &keyed, &bare, 0.6),
        ratio("transact, 16 callers / the same with a key by hand", &keyed, &hand, 1.0),
        ratio("claim + complete, one caller / by hand", &one, &one_hand, 1.0),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// A server with everything that matters at its default.
pub(super) fn start() -> Result<Postgres, Missing> {
    let server = Postgres::start_with(&["max_connections=300"]);
    server.ok_or_else(|| Missing("PostgreSQL is not installed (package postgresql)".to_owned()))
}

/// An engine over the store in this database.
pub(super) async fn open(url: &str) -> Onceward {
    Onceward::new(Arc::new(PostgresStore::open(url, Options::default()).await.unwrap())).unwrap()
}

/// Claim + complete of fresh ids by `count` callers.
pub(super) async fn claims(onceward: &Onceward, count: usize, length: Duration) -> Turn {
    let (onceward, policy) = (onceward.clone(), Arc::new(Policy::http()));
    let call = move |_| {
        let (onceward, ask) = (onceward.clone(), ask(&policy));
        async move {
            let work = async |_: Lease| Ok(Outcome::succeeded(ANSWER));
            assert!(!onceward.run(ask, work).await.unwrap().into_result().unwrap().replayed);
        }
    };
    callers(count, tokio::time::sleep(length), call).await
}

async fn transact(onceward: &Onceward, transactions: &PostgresTransactions, length: Duration) -> Turn {
    let (onceward, transactions, policy) = (onceward.clone(), transactions.clone(), Arc::new(Policy::http()));
    let call = move |_| {
        let (onceward, transactions, ask) = (onceward.clone(), transactions.clone(), ask(&policy));
        async move {
            let work = async |_: Lease, tx: PostgresTx| {
                let statement = tx.prepare_cached(BUSINESS).await?;
                tx.execute(&statement, &[&"a"]).await?;
                Ok(Outcome::succeeded(ANSWER))
            };
            assert!(
                !onceward.transact(&transactions, ask, work).await.unwrap().into_result().unwrap().replayed
            );
        }
    };
    callers(TRANSACTIONS, tokio::time::sleep(length), call).await
}

fn ask(policy: &Arc<Policy>) -> Ask {
    let id = Id::new("tenant", "POST /charges", &key()).unwrap();
    Ask::new(id, Fingerprint::new(1, [7; 32]), policy.clone())
}

/// A fresh key, spread over the index as keys of clients are.
pub(super) fn key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("order-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
