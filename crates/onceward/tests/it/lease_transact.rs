//! The outcome of a run, committed in a transaction of its work's own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::receipt::{Done, End, Status};
use onceward::{
    Answer, Attempt, Completed, Error, ErrorKind, Fault, Id, Lease, OnFailure, OnUnknown, Outcome, Policy,
    Recorded, Seen, Stopped, Store, Swap, Swapped, Transactions, Version, Worker, codec,
};
use onceward_stores::memory::{MemoryTransactions, MemoryTx};

use crate::cluster::{Cluster, ask, id, never, secs};

/// Effects that were committed.
#[derive(Clone, Default)]
struct Charges(Arc<AtomicUsize>);

impl Charges {
    /// Charges through a transaction.
    fn charge(&self, tx: &MemoryTx) {
        let charges = self.0.clone();
        tx.on_commit(move || {
            charges.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn policy() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(3)).build().unwrap()
}

fn body(answer: &Answer) -> (&[u8], bool, Recorded) {
    match answer {
        Answer::Completed(Completed { outcome, replayed, recorded, .. }) => {
            (outcome.body(), *replayed, *recorded)
        }
        Answer::Refused(refusal) => panic!("{refusal}"),
    }
}

/// Transactions whose next commits meet these fates.
struct Scripted {
    inner: MemoryTransactions,
    commits: Mutex<Vec<Fate>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is committed, and the answer is lost.
    LoseReply,
    /// It is not, and nobody can tell.
    LoseWrite,
    /// The database undoes it in favour of another.
    Undone,
}

impl Transactions for Scripted {
    type Tx = MemoryTx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(MemoryTx, Swapped), Fault> {
        self.inner.begin(claim, retention, patience).await
    }

    async fn begin_bare(&self, patience: Duration) -> Result<MemoryTx, Fault> {
        self.inner.begin_bare(patience).await
    }

    async fn commit<'a>(&'a self, tx: MemoryTx, completion: &'a Swap) -> Result<(), Fault> {
        let fate = self.commits.lock().unwrap().pop();
        let lost = || Error::new(ErrorKind::Unavailable, "the wire broke").maybe_applied();
        match fate {
            None => self.inner.commit(tx, completion).await,
            Some(Fate::LoseReply) => {
                self.inner.commit(tx, completion).await?;
                Err(Fault::Failed(lost()))
            }
            Some(Fate::LoseWrite) => {
                self.inner.rollback(tx).await;
                Err(Fault::Failed(lost()))
            }
            Some(Fate::Undone) => {
                self.inner.rollback(tx).await;
                Err(Fault::Undone(Error::new(ErrorKind::Conflict, "a deadlock")))
            }
        }
    }

    async fn commit_written<'a>(&'a self, tx: MemoryTx, id: &'a Id, written: Version) -> Result<(), Fault> {
        self.inner.commit_written(tx, id, written).await
    }

    async fn rollback(&self, tx: MemoryTx) {
        self.inner.rollback(tx).await;
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_worth_repeating(error)
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_is_the_answer_whatever_the_work_says_afterwards() {
    let cluster = Cluster::new();
    let (onceward, transactions, charges) =
        (cluster.process(), cluster.store.transactions(), Charges::default());
    for (key, afterwards) in [("ok", Ok("other words")), ("error", Err("a bug after the commit"))] {
        let work = async |lease: Lease| {
            let completed = lease.transact(&transactions, async |tx| {
                charges.charge(&tx);
                Ok(Outcome::succeeded("charged"))
            });
            let completed = completed.await?;
            assert_eq!((&completed.outcome.body()[..], completed.recorded), (&b"charged"[..], Recorded::Yes));
            assert_eq!(lease.committed().unwrap(), completed);
            match afterwards {
                Ok(words) => Ok(Outcome::failed(words)),
                Err(why) => Err(Stopped::unknown(why)),
            }
        };
        let answer = onceward.run(ask(key, &policy()), work).await.unwrap();
        assert_eq!(body(&answer), (&b"charged"[..], false, Recorded::Yes));
        let again = cluster.process().run(ask(key, &policy()), never).await.unwrap();
        assert_eq!(body(&again), (&b"charged"[..], true, Recorded::Yes));
    }
    assert_eq!(charges.count(), 2);
    let counts = onceward.counts();
    assert_eq!((counts.claims, counts.completions, counts.unknowns, counts.releases), (2, 2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn duplicates_here_get_what_was_committed() {
    let cluster = Cluster::new();
    let (onceward, transactions, charges) =
        (cluster.process(), cluster.store.transactions(), Charges::default());
    let first = onceward.run(ask("k", &policy()), async |lease| {
        let completed = lease.transact(&transactions, async |tx| {
            tokio::time::sleep(secs(1)).await;
            charges.charge(&tx);
            Ok(Outcome::succeeded("charged"))
        });
        Ok(completed.await?.outcome)
    });
    let second = onceward.run(ask("k", &policy()), never);
    let (first, second) = tokio::join!(first, second);
    assert_eq!(body(&first.unwrap()), (&b"charged"[..], false, Recorded::Yes));
    assert_eq!(body(&second.unwrap()), (&b"charged"[..], true, Recorded::Yes));
    assert_eq!(charges.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_stops_is_rolled_back_and_the_run_goes_on() {
    let cluster = Cluster::new();
    let (onceward, transactions, charges) =
        (cluster.process(), cluster.store.transactions(), Charges::default());
    let answer = onceward.run(ask("k", &policy()), async |lease| {
        let stopped = lease.transact(&transactions, async |tx| {
            charges.charge(&tx);
            Err(Stopped::before_effect("declined"))
        });
        let error = stopped.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert!(lease.committed().is_none());
        Ok(Outcome::failed("declined"))
    });
    assert_eq!(body(&answer.await.unwrap()), (&b"declined"[..], false, Recorded::Yes));
    assert_eq!(charges.count(), 0);

    // A failure that may be tried again is not committed either.
    let policy = policy().to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    let answer = onceward.run(ask("again", &policy), async |lease| {
        let completed = lease.transact(&transactions, async |tx| {
            charges.charge(&tx);
            Ok(Outcome::failed("not now"))
        });
        let completed = completed.await?;
        assert_eq!(completed.recorded, Recorded::Released);
        Ok(completed.outcome)
    });
    assert_eq!(body(&answer.await.unwrap()), (&b"not now"[..], false, Recorded::Released));
    assert_eq!(charges.count(), 0);
    assert!(onceward.receipt(&id("again")).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_undone_or_whose_answer_is_lost_charges_once() {
    for fates in [
        vec![Fate::LoseReply],
        vec![Fate::LoseWrite],
        vec![Fate::Undone],
        vec![Fate::LoseReply, Fate::LoseWrite, Fate::Undone, Fate::LoseWrite],
    ] {
        let cluster = Cluster::new();
        let (onceward, charges) = (cluster.process(), Charges::default());
        let commits = Mutex::new(fates.clone());
        let transactions = Scripted { inner: cluster.store.transactions(), commits };
        let answer = onceward.run(ask("k", &policy()), async |lease| {
            let completed = lease.transact(&transactions, async |tx| {
                charges.charge(&tx);
                Ok(Outcome::succeeded("charged"))
            });
            Ok(completed.await?.outcome)
        });
        assert_eq!(body(&answer.await.unwrap()), (&b"charged"[..], false, Recorded::Yes), "{fates:?}");
        assert_eq!(charges.count(), 1, "{fates:?}");
        assert!(transactions.commits.lock().unwrap().is_empty(), "{fates:?}");
        let again = cluster.process().run(ask("k", &policy()), never).await.unwrap();
        assert_eq!(body(&again), (&b"charged"[..], true, Recorded::Yes), "{fates:?}");
    }
}

/// A renewal that is in flight at the commit changes the version before it, or loses after it.
#[tokio::test(start_paused = true)]
async fn a_renewal_of_our_own_does_not_cost_the_commit() {
    for arrives_before in [true, false] {
        let cluster = Cluster::new();
        let (onceward, transactions, charges) =
            (cluster.process(), cluster.store.transactions(), Charges::default());
        let begun = AtomicUsize::new(0);
        let answer = onceward.run(ask("k", &policy()), async |lease| {
            let completed = lease.transact(&transactions, async |tx| {
                begun.fetch_add(1, Ordering::SeqCst);
                charges.charge(&tx);
                cluster.store.close_gate();
                // The renewal is due after a third of the lease, and hangs at the gate.
                tokio::time::sleep(Duration::from_millis(1_600)).await;
                if arrives_before {
                    renew_behind_the_gate(&cluster, &lease).await;
                }
                Ok(Outcome::succeeded("charged"))
            });
            let completed = completed.await?;
            cluster.store.open_gate();
            // It comes to the store now, and changes nothing.
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(completed.outcome)
        });
        assert_eq!(body(&answer.await.unwrap()), (&b"charged"[..], false, Recorded::Yes));
        assert_eq!((begun.load(Ordering::SeqCst), charges.count()), (1, 1), "the work was not done again");
        let receipt = onceward.receipt(&id("k")).await.unwrap().unwrap();
        assert_eq!(receipt.status.outcome(), Some(&Outcome::succeeded("charged")));
    }
}

/// What a renewal writes whose answer nobody has seen yet.
async fn renew_behind_the_gate(cluster: &Cluster, lease: &Lease) {
    let store = cluster.store.behind_the_gate();
    let found = store.load(&[lease.id().clone()]).await.unwrap().pop().unwrap().unwrap().unwrap();
    put(&*store, lease.id(), Seen::Version(found.version), &codec::decode(&found).unwrap().status).await;
}

async fn put(store: &dyn Store, id: &Id, seen: Seen, status: &Status) {
    let new = onceward::Record::new(status.state(), codec::encode(status)).with_due_in(Some(secs(3)));
    let swapped = store.swap(&[Swap { id: id.clone(), seen, new: Some(new) }]).await.unwrap();
    assert!(matches!(swapped[..], [Swapped::Won(_)]), "{swapped:?}");
}

#[tokio::test(start_paused = true)]
async fn a_former_owner_commits_nothing_and_gets_the_answer_of_its_successor() {
    let cluster = Cluster::new();
    let (onceward, transactions, charges) =
        (cluster.process(), cluster.store.transactions(), Charges::default());
    let answer = onceward.run(ask("k", &policy()), async |lease| {
        let lost = lease.transact(&transactions, async |tx| {
            charges.charge(&tx);
            // Somebody took the claim over and has finished it.
            let store = cluster.store.behind_the_gate();
            let found = store.load(&[lease.id().clone()]).await?.pop().unwrap()?.unwrap();
            let Status::Held(held) = codec::decode(&found)?.status else { panic!("it is held") };
            let mut claim = held.claim;
            (claim.attempt, claim.fence) = (Attempt(7), onceward::Fence(found.version.0 + 1));
            let end = End::Outcome(Outcome::succeeded("theirs"));
            let done = Status::Done(Done::new(claim, end));
            put(&*store, lease.id(), Seen::Version(found.version), &done).await;
            Ok(Outcome::succeeded("ours"))
        });
        let error = lost.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        Err(Stopped::unknown(error.to_string()))
    });
    assert_eq!(body(&answer.await.unwrap()), (&b"theirs"[..], true, Recorded::Yes));
    assert_eq!(charges.count(), 0);
    assert_eq!((onceward.counts().fenced_off, onceward.counts().leases_lost), (1, 1));
}

/// The process dies before the commit: the next one takes the run over, at the end of the lease.
#[tokio::test(start_paused = true)]
async fn what_a_dead_process_had_not_committed_is_done_by_the_next() {
    let cluster = Cluster::new();
    let (transactions, charges) = (cluster.store.transactions(), Charges::default());
    let (first, kill) = cluster.killable_process();
    let dying = first.run(ask("k", &policy()), async |lease| {
        let completed = lease.transact(&transactions, async |tx| {
            charges.charge(&tx);
            kill.now();
            std::future::pending::<()>().await;
            Ok(Outcome::succeeded("never"))
        });
        Ok(completed.await?.outcome)
    });
    assert!(tokio::time::timeout(secs(1), dying).await.is_err());
    let answer = cluster.process().run(ask("k", &policy()), async |lease| {
        let completed = lease.transact(&transactions, async |tx| {
            charges.charge(&tx);
            Ok(Outcome::succeeded("charged"))
        });
        Ok(completed.await?.outcome)
    });
    assert_eq!(body(&answer.await.unwrap()), (&b"charged"[..], false, Recorded::Yes));
    assert_eq!(charges.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_commits_the_outcome_of_its_task() {
    let cluster = Cluster::new();
    let (onceward, transactions, charges) =
        (cluster.process(), cluster.store.transactions(), Charges::default());
    onceward.enqueue(ask("k", &policy()).with_input("12")).await.unwrap();
    let (there, book) = (transactions.clone(), charges.clone());
    let work = move |lease: Lease| {
        let (transactions, charges) = (there.clone(), book.clone());
        async move {
            let completed = lease.transact(&transactions, async |tx| {
                charges.charge(&tx);
                Ok(Outcome::succeeded(lease.input().cloned().unwrap_or_default()))
            });
            completed.await?;
            Err(Stopped::before_effect("said too late to count"))
        }
    };
    let worker =
        Worker::builder(onceward.clone()).with_operation("charge", Arc::new(policy()), work).build().unwrap();
    assert_eq!(worker.run_once().await.unwrap().finished, 1);
    assert_eq!(charges.count(), 1);
    let receipt = onceward.receipt(&id("k")).await.unwrap().unwrap();
    assert_eq!(receipt.status.outcome(), Some(&Outcome::succeeded("12")));
}

/// Also where a transaction of another engine is in between.
#[tokio::test(start_paused = true)]
async fn a_transaction_inside_another_is_refused_however_deep() {
    let (one, two) = (Cluster::new(), Cluster::new());
    let (a, b) = (one.process(), two.process());
    let (in_a, in_b) = (one.store.transactions(), two.store.transactions());
    let policy = policy();
    let outer = a.transact(&in_a, ask("outer", &policy), async |_, _| {
        let middle = b.transact(&in_b, ask("middle", &policy), async |_, _| {
            let inner =
                a.transact(&in_a, ask("inner", &policy), async |_, _| Ok(Outcome::succeeded("inner")));
            let error = Box::pin(inner).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            Ok(Outcome::succeeded("middle"))
        });
        Box::pin(middle).await?.into_result()?;
        Ok(Outcome::succeeded("outer"))
    });
    outer.await.unwrap().into_result().unwrap();
    // When it is over, the next one may begin.
    a.transact(&in_a, ask("inner", &policy), async |_, _| Ok(Outcome::succeeded("after")))
        .await
        .unwrap()
        .into_result()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_its_run_and_a_transaction_inside_another_are_refused() {
    let cluster = Cluster::new();
    let (onceward, transactions) = (cluster.process(), cluster.store.transactions());
    let mut kept = None;
    let kept_here = &mut kept;
    let answer = onceward.run(ask("k", &policy()), async |lease: Lease| {
        let nested = lease.transact(&transactions, async |_| {
            let inside = lease.transact(&transactions, async |_| Ok(Outcome::succeeded("inside")));
            let error = Box::pin(inside).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            Err(Stopped::before_effect("enough"))
        });
        nested.await.unwrap_err();
        *kept_here = Some(lease);
        Ok(Outcome::succeeded("done"))
    });
    answer.await.unwrap();
    let late = kept.unwrap();
    let refused = late.transact(&transactions, async |_| panic!("this must not run")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LeaseLost, "{refused}");
}
