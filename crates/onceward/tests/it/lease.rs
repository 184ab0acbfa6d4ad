//! Leases: renewed while the work lives, and what the work sees when one is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward::{ErrorKind, OnUnknown, Outcome, Policy, Record, Seen, Store, Swap, Swapped};

use crate::cluster::{Cluster, Fault, ask, id, never, paid, secs};

fn retry() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(10)).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn work_longer_than_its_lease_keeps_it() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let first = tokio::spawn({
        let here = here.clone();
        async move {
            here.run(ask("k", &retry()), async |_| {
                tokio::time::sleep(secs(55)).await;
                Ok(Outcome::succeeded("slow but sure"))
            })
            .await
        }
    });
    tokio::time::sleep(secs(30)).await;
    let other = elsewhere.run(ask("k", &retry()), never).await.unwrap().into_result().unwrap();
    assert_eq!(other.outcome, Outcome::succeeded("slow but sure"));
    let completed = first.await.unwrap().unwrap().into_result().unwrap();
    assert_eq!(completed.fence, other.fence, "renewals leave the fence alone");
    assert!((11..=17).contains(&here.counts().renewals), "{:?}", here.counts());
}

#[tokio::test(start_paused = true)]
async fn renewals_of_many_leases_are_sent_together() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let mut runs = tokio::task::JoinSet::new();
    for at in 0..500 {
        let onceward = onceward.clone();
        runs.spawn(async move {
            onceward
                .run(ask(&format!("k{at}"), &retry()), async |_| {
                    tokio::time::sleep(secs(19)).await;
                    Ok(Outcome::succeeded("paid"))
                })
                .await
                .unwrap()
        });
    }
    tokio::time::sleep(secs(1)).await;
    let before = onceward.counts();
    tokio::time::sleep(secs(17)).await;
    let after = onceward.counts();
    assert!(after.renewals - before.renewals >= 1_500, "{after:?}");
    let trips = after.store_batches - before.store_batches;
    assert!(trips <= 20, "{} renewals took {trips} trips", after.renewals);
    runs.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_beside_long_ones_is_renewed_in_time() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let lease =
        |millis| retry().to_builder().with_lease(std::time::Duration::from_millis(millis)).build().unwrap();
    let run = |key: &'static str, millis, works_for| {
        let onceward = onceward.clone();
        tokio::spawn(async move {
            let work = async |_| {
                tokio::time::sleep(secs(works_for)).await;
                Ok(Outcome::succeeded("paid"))
            };
            onceward.run(ask(key, &lease(millis)), work).await.unwrap().into_result().unwrap()
        })
    };
    let long = run("long", 3_600_000, 60);
    tokio::time::sleep(secs(10)).await;
    let short = run("short", 100, 5);
    assert!(!short.await.unwrap().replayed);
    assert!(!long.await.unwrap().replayed);
    assert_eq!(onceward.counts().leases_lost, 0);
}

/// The store may have counted the lease from long before its answer came.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_took_a_whole_lease_is_renewed_before_the_work_begins() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    cluster.store.close_gate();
    let run = tokio::spawn({
        let onceward = onceward.clone();
        async move { onceward.run(ask("k", &retry()), paid).await }
    });
    tokio::time::sleep(secs(11)).await;
    assert_eq!(cluster.store.batches().len(), 1);
    cluster.store.open_gate();
    assert!(!run.await.unwrap().unwrap().into_result().unwrap().replayed);
    assert_eq!(cluster.store.batches().len(), 3, "claim, renewal, completion");
    assert_eq!(onceward.counts().takeovers, 0);
}

/// After an engine is dropped, its store can be opened again at once, not only after the next renewal.
#[tokio::test(start_paused = true)]
async fn a_dropped_engine_drops_its_store() {
    let store: Arc<dyn Store> = Arc::new(onceward_stores::MemoryStore::new());
    let onceward = onceward::Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    onceward.run(ask("k", &retry()), paid).await.unwrap();
    drop(onceward);
    crate::cluster::run_ready_tasks().await;
    assert_eq!(Arc::strong_count(&store), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_cancels_the_work() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let dropped = Arc::new(AtomicBool::new(false));
    let run = tokio::spawn({
        let (onceward, guard) = (onceward.clone(), OnDrop(dropped.clone()));
        async move {
            let work = async move |_| {
                let _guard = guard;
                std::future::pending().await
            };
            onceward.run(ask("k", &retry()), work).await
        }
    });
    tokio::time::sleep(secs(1)).await;
    // Somebody else has it now.
    let found = cluster.store.load(&[id("k")]).await.unwrap().remove(0).unwrap().unwrap();
    let taken = Record::new(found.state, other_claim(&found.bytes))
        .with_due_in(Some(secs(10)))
        .with_ends_with_writer(true);
    let new = Some(taken);
    let swap = Swap { id: id("k"), seen: Seen::Version(found.version), new };
    assert!(matches!(cluster.store.swap(&[swap]).await.unwrap()[0], Swapped::Won(_)));
    tokio::time::sleep(secs(6)).await;
    assert!(dropped.load(Ordering::SeqCst), "the work must be cancelled at the next renewal");
    assert_eq!(onceward.counts().leases_lost, 1);
    // The other one never finishes; the loser waits for it, then for its lease, and gets no answer.
    let error = run.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert_eq!(error.applied(), onceward::Applied::Maybe);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_does_not_lose_the_lease() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let run = tokio::spawn({
        let onceward = onceward.clone();
        async move {
            onceward
                .run(ask("k", &retry()), async |_| {
                    tokio::time::sleep(secs(25)).await;
                    Ok(Outcome::succeeded("paid"))
                })
                .await
        }
    });
    tokio::time::sleep(secs(1)).await;
    cluster.store.script([Fault::LoseReply, Fault::Pass, Fault::LoseWrite]);
    assert!(!run.await.unwrap().unwrap().into_result().unwrap().replayed);
    assert_eq!(onceward.counts().leases_lost, 0);
}

/// When the store cannot be reached until the lease is over, somebody else may be running it: work
/// under `Retry` is cancelled then, work under `Hold` goes on.
#[tokio::test(start_paused = true)]
async fn without_renewals_work_ends_with_its_lease_unless_it_is_held() {
    for (policy, cancelled) in
        [(retry(), 1), (retry().to_builder().with_on_unknown(OnUnknown::Hold).build().unwrap(), 0)]
    {
        let cluster = Cluster::new();
        let onceward = cluster.process();
        let run = tokio::spawn({
            let (onceward, policy) = (onceward.clone(), policy.clone());
            async move {
                onceward
                    .run(ask("k", &policy), async |_| {
                        tokio::time::sleep(secs(20)).await;
                        Ok(Outcome::succeeded("paid"))
                    })
                    .await
            }
        });
        tokio::time::sleep(secs(1)).await;
        cluster.store.script([Fault::Refuse; 10_000]);
        tokio::time::sleep(secs(14)).await;
        assert_eq!(onceward.counts().leases_lost, cancelled);
        cluster.store.heal();
        if cancelled == 1 {
            assert_eq!(run.await.unwrap().unwrap_err().kind(), ErrorKind::LeaseLost);
            assert!(
                !cluster
                    .process()
                    .run(ask("k", &policy), paid)
                    .await
                    .unwrap()
                    .into_result()
                    .unwrap()
                    .replayed
            );
        } else {
            assert!(!run.await.unwrap().unwrap().into_result().unwrap().replayed);
        }
    }
}

struct OnDrop(Arc<AtomicBool>);
impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The bytes of a claim like this one, by another attempt.
fn other_claim(bytes: &bytes::Bytes) -> bytes::Bytes {
    let found = onceward::Found::new(
        onceward::Version(1),
        onceward::State::Held,
        onceward::Due::Never,
        onceward::Age::default(),
        bytes.clone(),
    );
    let mut receipt = onceward::codec::decode(&found).unwrap();
    if let onceward::receipt::Status::Held(held) = &mut receipt.status {
        held.claim.attempt = onceward::Attempt(77);
    }
    onceward::codec::encode(&receipt.status)
}
