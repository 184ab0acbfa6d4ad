//! A volatile front: what it makes faster, and that nothing it does changes an answer.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onceward::{
    Answer, CACHE_AGE_MAX, Changed, Erase, ErrorKind, Front, FrontCache, FrontKey, FrontPut, IdentitySource,
    OnDuplicate, Onceward, Outcome, Policy, Refusal, Retention, StoreFuture, StoreIdentity,
};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::cluster::{Cluster, ask, ask_for, id, never, paid, run_ready_tasks, secs};

/// A front in this process, which can be told to misbehave.
#[derive(Default)]
struct TestFront {
    entries: Mutex<BTreeMap<FrontKey, (Bytes, Instant)>>,
    /// Everything that was ever put.
    all: Mutex<Vec<(FrontKey, Bytes)>>,
    changed: Notify,
    frozen: watch::Sender<bool>,
    /// Loses what is put.
    deaf: AtomicBool,
    gets: AtomicU64,
}

impl FrontCache for TestFront {
    fn get<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, Option<Bytes>> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.frozen.subscribe().wait_for(|frozen| !frozen).await.unwrap();
            Ok(self.there(key))
        })
    }

    fn put(&self, put: FrontPut) {
        if self.deaf.load(Ordering::SeqCst) {
            return;
        }
        self.all.lock().unwrap().push((put.key, put.bytes.clone()));
        let until = Instant::now() + put.ttl;
        let mut entries = self.entries.lock().unwrap();
        let is_there = entries.get(&put.key).is_some_and(|(_, until)| Instant::now() < *until);
        if put.replace || !is_there {
            entries.insert(put.key, (put.bytes, until));
        }
        drop(entries);
        self.changed.notify_waiters();
    }

    fn remove<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.frozen.subscribe().wait_for(|frozen| !frozen).await.unwrap();
            self.entries.lock().unwrap().remove(key);
            Ok(())
        })
    }

    fn changed<'a>(
        &'a self,
        key: &'a FrontKey,
        seen: Option<&'a Bytes>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let changed = self.changed.notified();
                if self.there(key).as_ref() != seen {
                    return;
                }
                changed.await;
            }
        })
    }
}

impl TestFront {
    /// The entry, unless it has ended.
    fn there(&self, key: &FrontKey) -> Option<Bytes> {
        let entries = self.entries.lock().unwrap();
        entries.get(key).filter(|(_, until)| Instant::now() < *until).map(|(bytes, _)| bytes.clone())
    }

    fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    fn flush(&self) {
        self.entries.lock().unwrap().clear();
    }

    fn len(&self) -> usize {
        self.entries.lock().unwrap().len()
    }

    /// Entries that are no hints.
    fn successes(&self) -> usize {
        self.entries.lock().unwrap().values().filter(|(bytes, _)| bytes[0] == 1).count()
    }

    /// Puts these bytes wherever anything is.
    fn overwrite(&self, change: impl Fn(&Bytes) -> Bytes) {
        for (bytes, until) in self.entries.lock().unwrap().values_mut() {
            *bytes = change(bytes);
            *until = Instant::now() + secs(3_600);
        }
    }
}

/// The identity of the store of a cluster.
struct Identity {
    cluster: Arc<Cluster>,
    number: AtomicU64,
    epoch: AtomicU64,
}

impl IdentitySource for Identity {
    fn read(&self) -> StoreFuture<'_, StoreIdentity> {
        Box::pin(async {
            let number = u8::try_from(self.number.load(Ordering::SeqCst)).unwrap();
            Ok(StoreIdentity::new(vec![number], [number; 32], self.cluster.now_us()))
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }
}

struct Fronted {
    cluster: Arc<Cluster>,
    front: Arc<TestFront>,
    identity: Arc<Identity>,
}

impl Fronted {
    fn new() -> Self {
        let cluster = Arc::new(Cluster::new());
        let identity =
            Identity { cluster: cluster.clone(), number: AtomicU64::new(1), epoch: AtomicU64::new(0) };
        Self { cluster, front: Arc::default(), identity: Arc::new(identity) }
    }

    /// A process that has read the identity of the store.
    async fn process(&self) -> Onceward {
        let front = Front::new(self.front.clone(), self.identity.clone());
        let builder = Onceward::builder(self.cluster.store.clone()).accept_volatile().with_front(front);
        let onceward = builder.build().unwrap();
        know_the_store(&onceward).await;
        onceward
    }
}

/// The first ask has the identity read; none is waited for.
async fn know_the_store(onceward: &Onceward) {
    onceward.answer_without_running(&ask("nothing", &Policy::http())).await.unwrap();
    run_ready_tasks().await;
}

fn trips(onceward: &Onceward) -> u64 {
    onceward.counts().store_batches + onceward.counts().store_loads
}

async fn replays(onceward: &Onceward, key: &str) -> bool {
    let answer = onceward.run(ask(key, &Policy::http()), never).await.unwrap();
    matches!(answer, Answer::Completed(completed) if completed.replayed && completed.outcome.body() == "paid")
}

#[tokio::test(start_paused = true)]
async fn another_process_replays_without_a_trip_to_the_store() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!((trips(&two) - before, two.counts().front_hits), (0, 1));
    // The same key for something else is refused by it too.
    let other = two.run(ask_for("a", "something else", &Policy::http()), never).await.unwrap();
    assert_eq!(other, Answer::Refused(Refusal::KeyReused));
    assert_eq!(trips(&two) - before, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_committed_in_a_transaction_is_there_too() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    let transactions = world.cluster.store.transactions();
    one.transact(&transactions, ask("a", &Policy::http()), async |_, _| Ok(Outcome::succeeded("paid")))
        .await
        .unwrap();
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!(trips(&two) - before, 0);
}

#[tokio::test(start_paused = true)]
async fn a_front_that_loses_everything_costs_a_trip() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    world.front.flush();
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!(trips(&two) - before, 1);
    // What was read from the store is in the front again.
    let three = world.process().await;
    let before = trips(&three);
    assert!(replays(&three, "a").await);
    assert_eq!(trips(&three) - before, 0);
}

#[tokio::test(start_paused = true)]
async fn forged_entries_and_those_of_other_ids_are_misses() {
    let world = Fronted::new();
    let one = world.process().await;
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    let of_a = world.front.entries.lock().unwrap().values().next().unwrap().0.clone();
    let bill = async |_| Ok(Outcome::succeeded("billed"));
    one.run(ask("b", &Policy::http()), bill).await.unwrap();
    world.front.overwrite(|_| of_a.clone());
    let two = world.process().await;
    let Answer::Completed(b) = two.run(ask("b", &Policy::http()), never).await.unwrap() else { panic!() };
    assert_eq!((b.outcome.body().as_ref(), two.counts().front_bad_seals), (&b"billed"[..], 1));
    world.front.overwrite(|bytes| {
        let mut forged = bytes.to_vec();
        forged[12] ^= 1;
        forged.into()
    });
    let three = world.process().await;
    assert!(replays(&three, "a").await);
    assert_eq!((three.counts().front_bad_seals, three.counts().front_hits), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_former_identity_are_misses() {
    let world = Fronted::new();
    let one = world.process().await;
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    world.identity.number.store(2, Ordering::SeqCst);
    // One that has read it before learns of it with a new connection.
    world.identity.epoch.store(1, Ordering::SeqCst);
    know_the_store(&one).await;
    let two = world.process().await;
    for process in [&one, &two] {
        let before = trips(process);
        assert!(replays(process, "a").await);
        assert_eq!(process.counts().front_hits, 0);
        assert_eq!(trips(process) - before, 1, "the store was not asked");
        world.front.flush();
    }
}

#[tokio::test(start_paused = true)]
async fn an_identity_is_believed_for_seconds_only() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    tokio::time::advance(secs(11)).await;
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!((trips(&two) - before, two.counts().front_hits), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_front_that_hangs_is_waited_for_once_and_then_left_alone() {
    let world = Fronted::new();
    let one = world.process().await;
    world.front.freeze(true);
    let began = Instant::now();
    for number in 0..100 {
        one.run(ask(&number.to_string(), &Policy::http()), paid).await.unwrap();
    }
    assert!(began.elapsed() <= Duration::from_millis(20), "it took {:?}", began.elapsed());
    assert_eq!(one.counts().front_bypasses, 101, "with the one before the identity was known");
    // After a while one ask tries it, and after it works again, all do.
    world.front.freeze(false);
    tokio::time::advance(secs(1)).await;
    know_the_store(&one).await;
    let bypasses = one.counts().front_bypasses;
    one.run(ask("new", &Policy::http()), paid).await.unwrap();
    assert_eq!(one.counts().front_bypasses, bypasses);
}

#[tokio::test(start_paused = true)]
async fn an_erased_answer_is_gone_at_once_and_a_late_copy_within_the_bound() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    let began = Instant::now();
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    let (key, late) = world.front.all.lock().unwrap().last().unwrap().clone();
    assert_eq!(one.erase(&id("a"), &Erase::new()).await.unwrap(), Changed::Applied);
    assert_eq!(world.front.len(), 0);
    let not_stored = async |process: &Onceward| {
        let answer = process.run(ask("a", &Policy::http()), never).await.unwrap();
        matches!(answer, Answer::Refused(Refusal::ResponseNotStored { .. }))
    };
    assert!(not_stored(&two).await);
    // The front gets it late, and keeps it for as long as it likes.
    world.front.put(late_put(key, late));
    let known = |after: Duration| async move {
        tokio::time::sleep_until(began + after).await;
    };
    known(CACHE_AGE_MAX.saturating_sub(secs(1))).await;
    let three = world.process().await;
    assert!(replays(&three, "a").await, "within the bound it may still be given");
    known(CACHE_AGE_MAX).await;
    let four = world.process().await;
    assert!(not_stored(&three).await, "it was kept in memory for longer than the front had it");
    assert!(not_stored(&four).await);
}

fn late_put(key: FrontKey, bytes: Bytes) -> FrontPut {
    FrontPut::new(key, bytes, secs(3_600)).with_replace(true)
}

#[tokio::test(start_paused = true)]
async fn an_erasure_does_not_wait_long_for_a_front_that_hangs() {
    let world = Fronted::new();
    let one = world.process().await;
    for key in ["a", "b", "c"] {
        one.run(ask(key, &Policy::http()), paid).await.unwrap();
    }
    world.front.freeze(true);
    let began = Instant::now();
    for key in ["a", "b", "c"] {
        assert_eq!(one.erase(&id(key), &Erase::new()).await.unwrap(), Changed::Applied);
    }
    assert!(began.elapsed() <= secs(1), "it took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_past_its_retention() {
    let world = Fronted::new();
    let one = world.process().await;
    let policy =
        Policy::http().to_builder().with_retention_succeeded(Retention::For(secs(10))).build().unwrap();
    one.run(ask("a", &policy), paid).await.unwrap();
    world.front.overwrite(Bytes::clone);
    tokio::time::advance(Duration::from_millis(8_900)).await;
    let two = world.process().await;
    let answer = two.run(ask("a", &policy), never).await.unwrap();
    assert!(matches!(answer, Answer::Completed(completed) if completed.replayed));
    assert_eq!(two.counts().front_hits, 1);
    tokio::time::advance(Duration::from_millis(200)).await;
    let three = world.process().await;
    three.run(ask("a", &policy), never).await.unwrap();
    assert_eq!(three.counts().front_hits, 0, "an entry lived on in the last second of its retention");
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_waited_on_and_the_store_is_asked_in_the_end() {
    let world = Fronted::new();
    let (one, two, three) = (world.process().await, world.process().await, world.process().await);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let one = one.clone();
        async move {
            let work = async |_| {
                ended.await.unwrap();
                Ok(Outcome::succeeded("paid"))
            };
            one.run(ask("a", &Policy::http()), work).await.unwrap()
        }
    });
    run_ready_tasks().await;
    // The second process finds it held and says so; the third one waits for the signal.
    let second = tokio::spawn(async move { replays(&two, "a").await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = trips(&three);
    let third = tokio::spawn({
        let three = three.clone();
        async move { replays(&three, "a").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((trips(&three) - before, three.counts().front_waits), (0, 1));
    end.send(()).unwrap();
    assert!(third.await.unwrap() && second.await.unwrap());
    assert_eq!(trips(&three) - before, 1, "the wait ends in one look at the store");
    running.await.unwrap();
}

/// Runs `key` in one process until the sender is used, with this outcome.
async fn begin_run(process: &Onceward, key: &str, outcome: Outcome) -> tokio::sync::oneshot::Sender<()> {
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let (process, ask) = (process.clone(), ask(key, &Policy::http()));
    tokio::spawn(async move {
        let work = async |_| {
            ended.await.unwrap();
            Ok(outcome)
        };
        process.run(ask, work).await.unwrap()
    });
    run_ready_tasks().await;
    end
}

/// Asks for `key` in this process, many times at once.
fn ask_many(process: &Onceward, key: &str, copies: usize) -> tokio::task::JoinSet<Answer> {
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..copies {
        let (process, ask) = (process.clone(), ask(key, &Policy::http()));
        asks.spawn(async move { process.run(ask, never).await.unwrap() });
    }
    asks
}

#[tokio::test(start_paused = true)]
async fn duplicates_in_three_processes_cost_each_at_most_two_trips() {
    let world = Fronted::new();
    let (one, two, three) = (world.process().await, world.process().await, world.process().await);
    let before = [&one, &two, &three].map(trips);
    let end = begin_run(&one, "a", Outcome::succeeded("paid")).await;
    let asks = [&one, &two, &three].map(|process| ask_many(process, "a", 3_333));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let ended = Instant::now();
    end.send(()).unwrap();
    for asks in asks {
        for answer in asks.join_all().await {
            let Answer::Completed(completed) = answer else { panic!("{answer:?}") };
            assert!(completed.replayed && completed.outcome.body() == "paid");
        }
    }
    assert!(ended.elapsed() <= Duration::from_millis(1), "the signal was not used: {:?}", ended.elapsed());
    for (process, before) in [&one, &two, &three].into_iter().zip(before) {
        let made = trips(process) - before;
        assert!((1..=2).contains(&made), "{made} trips: {:?}", process.counts());
    }
}

/// An end that is not in the front is said there all the same: those who wait look at the store at once.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_that_failed_is_signalled_too() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    let end = begin_run(&one, "a", Outcome::failed("declined")).await;
    let before = trips(&two);
    let mut asks = ask_many(&two, "a", 1);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(trips(&two) - before, 1, "the store was looked at while nothing was said");
    let ended = Instant::now();
    end.send(()).unwrap();
    let answer = asks.join_next().await.unwrap().unwrap();
    let Answer::Completed(completed) = answer else { panic!("{answer:?}") };
    assert!(completed.replayed && completed.outcome.body() == "declined");
    assert!(ended.elapsed() <= Duration::from_millis(10), "it took {:?}", ended.elapsed());
    assert_eq!(trips(&two) - before, 2);
}

#[tokio::test(start_paused = true)]
async fn a_front_that_loses_every_signal_costs_seconds_and_nothing_else() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    let end = begin_run(&one, "a", Outcome::succeeded("paid")).await;
    let mut asks = ask_many(&two, "a", 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Nothing that is written from now on arrives, and a hint stays what it is.
    world.front.deaf.store(true, Ordering::SeqCst);
    let ended = Instant::now();
    end.send(()).unwrap();
    let answer = asks.join_next().await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Completed(completed) if completed.replayed));
    assert!(ended.elapsed() <= secs(2), "it took {:?}", ended.elapsed());
}

/// While the front cannot be used, the store is looked at as often as without one.
#[tokio::test(start_paused = true)]
async fn a_front_that_hangs_while_a_run_is_followed_is_given_up() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    let end = begin_run(&one, "a", Outcome::succeeded("paid")).await;
    let mut asks = ask_many(&two, "a", 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.front.freeze(true);
    tokio::time::sleep(secs(1)).await;
    let ended = Instant::now();
    end.send(()).unwrap();
    let answer = asks.join_next().await.unwrap().unwrap();
    assert!(matches!(answer, Answer::Completed(completed) if completed.replayed));
    assert!(ended.elapsed() <= Duration::from_millis(250), "it took {:?}", ended.elapsed());
}

/// The owner has died: its lease ends, whatever hints say, and the work is run by the one that waits.
#[tokio::test(start_paused = true)]
async fn a_run_is_followed_for_no_longer_than_its_lease() {
    let world = Fronted::new();
    let two = world.process().await;
    let policy = Policy::http().to_builder().with_on_unknown(onceward::OnUnknown::Retry).build().unwrap();
    let lease = policy.lease();
    let front = Front::new(world.front.clone(), world.identity.clone());
    let (store, kill) = world.cluster.killable_store();
    let one = Onceward::builder(store).accept_volatile().with_front(front).build().unwrap();
    know_the_store(&one).await;
    let claimed = ask("a", &policy);
    let running = tokio::spawn(async move { one.run(claimed, async |_| std::future::pending().await).await });
    run_ready_tasks().await;
    kill.now();
    running.abort();
    let began = Instant::now();
    // Held for an hour, says somebody, again and again.
    let ends_us = world.cluster.now_us() + 3_600_000_000;
    let hint = Bytes::from([&[2][..], &ends_us.to_le_bytes()].concat());
    let patient = policy.to_builder().with_on_duplicate(OnDuplicate::Wait(lease + secs(10))).build().unwrap();
    let waiting = tokio::spawn(async move { two.run(ask("a", &patient), paid).await.unwrap() });
    run_ready_tasks().await;
    world.front.overwrite(|_| hint.clone());
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Answer::Completed(completed) if !completed.replayed));
    assert!(began.elapsed() <= lease + secs(1), "it took {:?}", began.elapsed());
}

/// What a former run has left there is not the answer to one that is held now.
#[tokio::test(start_paused = true)]
async fn a_success_of_a_former_run_does_not_answer_for_the_one_that_is_followed() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    let (key, former) = world.front.all.lock().unwrap().last().unwrap().clone();
    let reopen = Erase::new().with_reopen(true);
    assert_eq!(one.erase(&id("a"), &reopen).await.unwrap(), Changed::Applied);
    let end = begin_run(&one, "a", Outcome::succeeded("paid again")).await;
    let mut asks = ask_many(&two, "a", 1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.front.put(late_put(key, former));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(asks.try_join_next().is_none(), "the success of a former run was given");
    end.send(()).unwrap();
    let answer = asks.join_next().await.unwrap().unwrap();
    let Answer::Completed(completed) = answer else { panic!("{answer:?}") };
    assert_eq!(completed.outcome.body(), "paid again");
}

/// Where nothing is ever asked twice, looks are rare; the first duplicate brings them back.
#[tokio::test(start_paused = true)]
async fn a_front_that_never_has_an_answer_is_asked_less() {
    let world = Fronted::new();
    let (one, two) = (world.process().await, world.process().await);
    for number in 0..1_000 {
        one.run(ask(&number.to_string(), &Policy::http()), paid).await.unwrap();
    }
    let looks = one.counts().front_misses;
    assert!((256..=400).contains(&looks), "{looks} looks for 1,000 new keys");
    for number in 0..10 {
        two.run(ask(&format!("other-{number}"), &Policy::http()), paid).await.unwrap();
    }
    let before = trips(&one);
    for number in 0..10 {
        assert!(replays(&one, &format!("other-{number}")).await);
    }
    let made = trips(&one) - before;
    assert!(made <= 1, "{made} trips for replays after the first one");
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_not_true_delays_an_ask_and_changes_nothing() {
    let world = Fronted::new();
    let one = world.process().await;
    one.run(ask("a", &Policy::http()), paid).await.unwrap();
    // Held for an hour, says somebody.
    let ends_us = world.cluster.now_us() + 3_600_000_000;
    let hint = Bytes::from([&[2][..], &ends_us.to_le_bytes()].concat());
    world.front.overwrite(|_| hint.clone());
    let two = world.process().await;
    let began = Instant::now();
    assert!(replays(&two, "a").await);
    assert!(began.elapsed() <= Duration::from_millis(250), "it took {:?}", began.elapsed());
    // Who would not wait for a duplicate does not wait for a hint of one.
    world.front.overwrite(|_| hint.clone());
    let three = world.process().await;
    let impatient = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
    let began = Instant::now();
    let answer = three.run(ask("a", &impatient), never).await.unwrap();
    assert!(matches!(answer, Answer::Completed(completed) if completed.replayed));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn steps_and_failures_are_not_in_it() {
    let world = Fronted::new();
    let one = world.process().await;
    let declined = async |_| Ok(Outcome::failed("declined"));
    one.run(ask("failed", &Policy::http()), declined).await.unwrap();
    assert_eq!(world.front.successes(), 0);
    let order = async |lease: onceward::Lease| {
        lease.step("charge", async |_| Ok(Outcome::succeeded("charged"))).await?.into_result()?;
        Ok(Outcome::succeeded("ordered"))
    };
    one.run(ask("order", &Policy::http()), order).await.unwrap();
    assert_eq!(world.front.successes(), 1, "only the intent itself");
}

#[tokio::test]
async fn a_front_before_a_store_of_one_process_is_refused() {
    let world = Fronted::new();
    let front = Front::new(world.front.clone(), world.identity.clone());
    let alone = Arc::new(onceward_stores::MemoryStore::new());
    let error = Onceward::builder(alone).accept_volatile().with_front(front).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit);
    assert!(error.to_string().contains("share"), "{error}");
}
