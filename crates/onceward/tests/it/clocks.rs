//! Stores without a clock of their own: each process goes by its own, and these differ by up to the margin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    Caps, Choose, ClockSource, Due, DueLookup, Found, Hints, Id, Lease, Loaded, OnUnknown, Onceward, Outcome,
    Page, Policy, Scan, State, Store, StoreFuture, Swap, Swapped, Sweep, Watch, Worker,
};

use crate::cluster::{Cluster, ask, id, paid, run_ready_tasks, secs};

/// The store as a process sees it whose clock is ahead.
struct Ahead {
    store: Arc<dyn Store>,
    by: Duration,
    margin: Duration,
    due: DueLookup,
    scans: AtomicUsize,
}

impl Ahead {
    fn seen(&self, mut found: Found) -> Found {
        found.due = match found.due {
            Due::In(remaining) => {
                let over = || Due::Over(self.by.saturating_sub(remaining));
                remaining.checked_sub(self.by).filter(|left| !left.is_zero()).map_or_else(over, Due::In)
            }
            Due::Over(ago) => Due::Over(ago + self.by),
            Due::Never => Due::Never,
        };
        found
    }
}

impl Store for Ahead {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let mut batch = batch.to_vec();
            for record in batch.iter_mut().filter_map(|swap| swap.new.as_mut()) {
                record.due_in = record.due_in.map(|due_in| due_in + self.by);
            }
            let swapped = self.store.swap(&batch).await?;
            let seen = |swapped| match swapped {
                Swapped::Lost(found) => Swapped::Lost(found.map(|found| self.seen(found))),
                other => other,
            };
            Ok(swapped.into_iter().map(seen).collect())
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let loaded = self.store.load(ids).await?;
            Ok(loaded.into_iter().map(|one| one.map(|found| found.map(|found| self.seen(found)))).collect())
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.store.scan(query)
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        let caps = self.store.caps();
        let promises = caps.promises.with_clock(ClockSource::Process { margin: self.margin });
        Caps::new("ahead", promises).with_hints(Hints::default().with_due(self.due))
    }
}

fn process(store: Arc<dyn Store>, by: Duration, margin: Duration) -> Onceward {
    let due = DueLookup::Index;
    let store = Ahead { store, by, margin, due, scans: AtomicUsize::new(0) };
    Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap()
}

fn retry() -> Policy {
    Policy::http().to_builder().with_lease(secs(10)).with_on_unknown(OnUnknown::Retry).build().unwrap()
}

/// When a successor whose clock is ahead begins, and whether the owner counted on its lease then.
async fn takeover(by: Duration, margin: Duration) -> (Duration, bool) {
    let cluster = Cluster::new();
    let owner = process(cluster.store.clone(), Duration::ZERO, margin);
    let (tell, told) = tokio::sync::oneshot::channel();
    let first = tokio::spawn(async move {
        let work = async move |lease: Lease| {
            let _ = tell.send(lease);
            std::future::pending().await
        };
        owner.run(ask("k", &retry()), work).await
    });
    let lease = told.await.unwrap();
    let began = tokio::time::Instant::now();
    assert!(lease.is_held());
    // From here on the owner does not reach the store: its renewals hang.
    cluster.store.close_gate();
    let successor = process(cluster.store.behind_the_gate(), by, margin);
    let work = async |_: Lease| {
        let held = lease.is_held();
        Ok(Outcome::succeeded(if held { "held" } else { "over" }))
    };
    let completed = successor.run(ask("k", &retry()), work).await.unwrap().into_result().unwrap();
    first.abort();
    (began.elapsed(), completed.outcome == Outcome::succeeded("held"))
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_over_a_lease_that_its_owner_counts_on() {
    for by in [0, 1, 3] {
        let (after, held) = takeover(secs(by), secs(3)).await;
        assert!(!held && after >= secs(10), "{by} s ahead: taken over after {after:?}");
        assert!(after < secs(15), "{by} s ahead: taken over after {after:?}");
    }
    // The clocks differ by more than was promised: this is what the margin is for.
    let (after, held) = takeover(secs(3), Duration::ZERO).await;
    assert!(held && after < secs(10), "taken over after {after:?}");
}

/// Its own claim, whose answer was lost: it reads the margin with it, and does not count on it.
#[tokio::test(start_paused = true)]
async fn an_owner_does_not_count_on_the_margin() {
    let cluster = Cluster::new();
    let owner = process(cluster.store.clone(), Duration::ZERO, secs(3));
    cluster.store.script([crate::cluster::Fault::LoseReply]);
    let store = cluster.store.clone();
    let work = async |lease: Lease| {
        store.close_gate();
        tokio::time::sleep(secs(9)).await;
        let before = lease.is_held();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        let after = lease.is_held();
        store.open_gate();
        Ok(Outcome::succeeded(format!("{before} {after}")))
    };
    let hold = retry().to_builder().with_on_unknown(OnUnknown::Hold).build().unwrap();
    let completed = owner.run(ask("k", &hold), work).await.unwrap().into_result().unwrap();
    assert_eq!(completed.outcome, Outcome::succeeded("true false"));
}

/// A store that walks over everything to find what is due is asked for it more rarely.
#[tokio::test(start_paused = true)]
async fn a_store_without_an_index_is_scanned_rarely() {
    let mut scans = Vec::new();
    for due in [DueLookup::Index, DueLookup::Walk] {
        let store = Cluster::new().store.behind_the_gate();
        let zero = Duration::ZERO;
        let store = Arc::new(Ahead { store, by: zero, margin: zero, due, scans: AtomicUsize::new(0) });
        let onceward = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
        let sweeping = tokio::spawn({
            let onceward = onceward.clone();
            async move { onceward.sweep_forever(Sweep::default(), secs(1)).await }
        });
        tokio::time::sleep(secs(100)).await;
        sweeping.abort();
        let swept = store.scans.swap(0, Ordering::SeqCst);
        let worker =
            Worker::builder(onceward.clone()).with_operation("charge", retry(), paid).build().unwrap();
        let running = worker.run_until(tokio::time::sleep(secs(2)));
        let enqueueing = async {
            for key in 0..50 {
                onceward.enqueue(ask(&key.to_string(), &retry()).with_input("")).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::join!(running, enqueueing);
        run_ready_tasks().await;
        assert!(
            onceward.receipt(&id("49")).await.unwrap().is_some_and(|found| found.status.outcome().is_some())
        );
        scans.push(swept);
    }
    assert!(scans[0] >= 5 * scans[1] && scans[1] > 0, "{scans:?}");
}
