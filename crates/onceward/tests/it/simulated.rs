//! What the simulator found first, each in a test of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::receipt::{Owner, Status, Waiting};
use onceward::transition::{self, Finish};
use onceward::{
    Age, Answer, Applied, Attempt, Caps, Choose, Due, Error, ErrorKind, Id, Lease, Loaded, OnFailure,
    OnUnknown, Onceward, Outcome, Page, Policy, Prior, Receipt, Recorded, Result, Scan, State, Stopped,
    Store, StoreFuture, Swap, Swapped, Takeover, Version, Watch, take_by_scan,
};

use crate::cluster::{Cluster, Fault, ask, id, never, paid, run_ready_tasks, secs};

/// How the work of one caller stopped is no answer to another one.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_stops_leaves_its_waiters_to_ask_for_themselves() {
    let cluster = Cluster::new();
    let (onceward, transactions) = (cluster.process(), cluster.store.transactions());
    let stops = onceward.transact(&transactions, ask("k", &Policy::http()), async |_, _| {
        tokio::time::sleep(secs(1)).await;
        Err(Stopped::before_effect("no"))
    });
    let waits = async {
        run_ready_tasks().await;
        onceward.run(ask("k", &Policy::http()), paid).await
    };
    let (stopped, waited) = tokio::join!(stops, waits);
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
    assert!(matches!(waited.unwrap(), Answer::Completed(completed) if !completed.replayed));
}

#[tokio::test(start_paused = true)]
async fn a_failure_to_be_retried_is_released_also_where_that_is_delayed() {
    let cluster = Cluster::new();
    let policy = Policy::http().to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    cluster.store.script([Fault::Pass, Fault::Refuse]);
    let failed = async |_: Lease| Ok(Outcome::failed("declined"));
    let completed = cluster.process().run(ask("k", &policy), failed).await.unwrap().into_result().unwrap();
    assert_eq!((completed.recorded, completed.expires_in), (Recorded::Released, None));
}

#[tokio::test(start_paused = true)]
async fn an_enqueue_that_fails_after_a_lost_answer_may_have_happened() {
    let cluster = Cluster::new();
    cluster.store.script([Fault::LoseWrite, Fault::Refuse]);
    let error = cluster.process().enqueue(ask("k", &Policy::queue()).with_input("12")).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe);
}

/// The answer to the first claim is lost, the second one wins, runs and gives the key back; then the first one
/// arrives. Nobody works under it, and its process lives.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_after_its_run_is_released() {
    let cluster = Cluster::new();
    let store = Arc::new(LateStore {
        inner: cluster.store.clone(),
        late: Mutex::default(),
        lost: AtomicUsize::new(1),
    });
    let onceward = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    let stops = async |_: Lease| Err(Stopped::before_effect("no"));
    assert!(onceward.run(ask("k", &Policy::http()), stops).await.is_err());
    assert!(onceward.receipt(&id("k")).await.unwrap().is_none());

    store.arrive().await;
    assert!(onceward.receipt(&id("k")).await.unwrap().is_some());
    tokio::time::sleep(secs(60)).await;
    assert!(onceward.receipt(&id("k")).await.unwrap().is_none(), "nobody gave it back");
    assert!(
        !cluster
            .process()
            .run(ask("k", &Policy::http()), paid)
            .await
            .unwrap()
            .into_result()
            .unwrap()
            .replayed
    );
}

/// The answers to both claims of one ask are lost; both arrive, one after the other was released.
#[tokio::test(start_paused = true)]
async fn both_claims_of_an_ask_are_released() {
    let cluster = Cluster::new();
    let store = Arc::new(LateStore {
        inner: cluster.store.clone(),
        late: Mutex::default(),
        lost: AtomicUsize::new(2),
    });
    let onceward = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    let asking = onceward.run(ask("k", &Policy::http()), never);
    // The second one is on its way for as long as the ask is: it is dropped with its answer outstanding.
    assert!(tokio::time::timeout(Duration::from_millis(1), asking).await.is_err());
    for _ in 0..2 {
        store.arrive().await;
        tokio::time::sleep(secs(20)).await;
        assert!(onceward.receipt(&id("k")).await.unwrap().is_none(), "nobody gave it back");
    }
}

/// An unknown outcome does not hide an earlier one.
#[test]
fn an_unknown_outcome_keeps_the_one_before_it() {
    let policy = Policy::http().to_builder().with_on_unknown(OnUnknown::Hold).build().unwrap();
    let mut held = transition::claim(&ask("k", &policy), Attempt(7), Owner::Run, Takeover::Absent, None);
    held.prior = Prior::Unknown;
    let receipt = |status, due| Receipt::new(Version(9), due, Age::default(), status);
    let lapsed = receipt(Status::Held(held), Due::Over(secs(1)));
    let unknown = receipt(transition::lapse(&lapsed).unwrap().status, Due::Never);
    let run = transition::run_of(&unknown.status).unwrap();
    // Its own work never began, so it is released; the earlier outcome is unknown as before.
    let write = transition::end(&id("k"), &run, &Finish::Suspend(Duration::ZERO), &policy).unwrap();
    assert!(matches!(write.status, Status::Waiting(Waiting { prior: Prior::Unknown, .. })));
}

/// The first writes through it are lost on their way, and arrive when the test says so. That the second one was
/// lost is known only after a while.
struct LateStore {
    inner: Arc<dyn Store>,
    late: Mutex<Vec<Vec<Swap>>>,
    lost: AtomicUsize,
}

impl LateStore {
    async fn arrive(&self) {
        let batch = self.late.lock().unwrap().remove(0);
        self.inner.swap(&batch).await.unwrap();
    }

    fn loses_one(&self) -> Option<usize> {
        let less = |left: usize| left.checked_sub(1);
        self.lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).ok()
    }
}

impl Store for LateStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        let Some(left) = self.loses_one() else { return self.inner.swap(batch) };
        let first = {
            let mut late = self.late.lock().unwrap();
            late.push(batch.to_vec());
            late.len() == 1
        };
        Box::pin(async move {
            if left == 1 && !first {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            lost()
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.inner.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        take_by_scan(self, state, limit, choose)
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

fn lost<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unavailable, "the wire broke").maybe_applied())
}
