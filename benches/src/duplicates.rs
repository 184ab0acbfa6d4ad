//! A storm of copies of one running intent.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Ask, Fingerprint, Id, Outcome, Policy};

use crate::table::Table;

const COPIES: usize = 10_000;

pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let table = Table::start("10,000 copies of one running intent, embedded store");
    runtime.block_on(async {
        let onceward = crate::embedded::engine(&folder.path().join("store")).await;
        let policy = Arc::new(Policy::http());
        let mut copies = tokio::task::JoinSet::new();
        for _ in 0..COPIES {
            let (onceward, policy) = (onceward.clone(), policy.clone());
            copies.spawn(async move {
                let ask = Ask::new(Id::new("tenant", "charge", "hot").unwrap(), Fingerprint::of(b""), policy);
                let work = async |_| {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(Outcome::succeeded("once"))
                };
                onceward.run(ask, work).await.unwrap().ran().unwrap().replayed
            });
        }
        let replayed = copies.join_all().await.into_iter().filter(|replayed| *replayed).count();
        assert_eq!(replayed, COPIES - 1, "it ran more than once");
        let counts = onceward.counts();
        let trips = counts.store_batches + counts.store_loads;
        table.row("store trips in all", &trips.to_string(), "<= 2", Some(trips <= 2));
    });
}
