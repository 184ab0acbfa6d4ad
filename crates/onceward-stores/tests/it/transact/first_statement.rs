//! Tests of a statement that is sent together with the beginning of a transaction.

use std::time::Duration;

use onceward::{Fault, Seen, State, Swap, Swapped, Transactions};
use onceward_stores::sql::{Begun, Cell, SqlTransactions};

use crate::bank::{Bank, Process, ask};
use crate::support::put;

const PATIENCE: Duration = Duration::from_secs(20);

/// It sees the claim, runs whatever becomes of the claim, and where it fails nothing has begun.
pub(super) async fn every<B: Bank>(bank: &B, process: &Process<B>) {
    let claim = put(ask("counted").id().clone(), Seen::Absent, State::Held, Some(30));
    let begin = async |statement: &str, claim: &Swap| {
        process.transactions.begin_with(claim, None, PATIENCE, statement, &[]).await
    };
    let counting = "SELECT COUNT(*) FROM onceward_receipts WHERE key = 'counted'";
    let counting =
        if bank.url().starts_with("mysql") { counting.replace("key", "`key`") } else { counting.into() };

    let Begun { tx, claimed, first, .. } = begin(&counting, &claim).await.unwrap();
    assert!(matches!(claimed, Swapped::Won(_)), "{claimed:?}");
    assert_eq!(first, Some(vec![Cell::Int(1)]), "it comes after the claim");
    process.transactions.rollback(tx).await;

    let failed = begin("SELECT a FROM nowhere", &claim).await;
    assert!(matches!(failed, Err(Fault::Failed(_))), "{failed:?}");

    // Neither of the two is in the way.
    process.charge(ask("counted")).await.unwrap();
    let Begun { tx, claimed, first, .. } = begin(&counting, &claim).await.unwrap();
    assert!(matches!(claimed, Swapped::Lost(Some(_))), "{claimed:?}");
    assert_eq!(first, Some(vec![Cell::Int(1)]));
    process.transactions.rollback(tx).await;
    assert_eq!(bank.count("counted"), 1);
}
