//! Batches in one transaction, on every engine: each message has one effect in the order of its key, and nobody pays for
//! the failure of a neighbour.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use onceward_flows::{Consumer, ConsumerOptions, DeadLetterFilter, Failure, Message, OnDead, Received};
use onceward_stores::sql::{Dialect, SqlTransaction, Value};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::log::Log;
use super::{locally, options, order, short_lease};
use crate::engines::{Db, Engine, on_every_engine};

on_every_engine!(
    every_message_of_a_batch_has_one_effect_in_order,
    several_of_one_key_are_in_one_batch_in_their_order,
    a_failed_batch_is_repeated_one_by_one_and_only_what_fails_alone_is_charged,
    a_panic_and_a_permanent_failure_harm_no_neighbour,
    a_replay_in_batches_has_no_second_effect,
    duplicates_amid_a_batch_are_left_out_and_not_overtaken,
    copies_and_conflicts_in_a_batch_are_decided_alone_and_not_overtaken,
    what_waits_behind_a_dead_letter_is_not_in_a_batch,
    a_batch_under_a_lost_fence_has_no_effect,
    a_part_is_not_taken_while_its_batch_can_commit,
    an_abort_in_a_batch_leaves_nothing,
    an_end_after_the_commit_repeats_no_effect,
);

/// A stock service that reads a log.
struct Shop<E: Engine> {
    db: Db<E>,
    log: Log,
}

/// What the handler does with some payloads, and what it has seen.
#[derive(Default)]
struct Seen {
    /// It refuses what begins with `bad`.
    is_broken: Cell<bool>,
    /// It stays where it is, once it has noted everything.
    hangs: Cell<bool>,
    is_hanging: Cell<bool>,
    gate: Cell<Gate>,
    sizes: RefCell<Vec<usize>>,
    /// How often each message was given to it by itself, and how many tries it was told of.
    alone: RefCell<HashMap<String, Vec<u32>>>,
}

/// A message at which the handler waits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Gate {
    #[default]
    Ahead,
    Reached,
    Open,
}

impl<E: Engine> Shop<E> {
    async fn fresh() -> Option<Self> {
        let db = Db::fresh().await?;
        db.sql(&format!(
            "CREATE TABLE effects (number {}, name varchar(50), payload varchar(50), id varchar(50))",
            E::COUNTED
        ))
        .await;
        Some(Self { db, log: Log::new("orders") })
    }

    async fn consumer(&self, options: ConsumerOptions) -> Consumer<E::Transactions> {
        Consumer::new("stock", self.log.clone(), self.db.consumer_database().await).with_options(options)
    }

    /// Adds messages while the handler is busy with another one, and lets that one end when all have been read: with one
    /// transaction at a time, they are then in as few batches as can be.
    async fn add_together(&self, seen: &Seen, messages: impl IntoIterator<Item = Message>) {
        seen.gate.set(Gate::Ahead);
        self.log.add(order("gate", "gate"));
        until("at the gate", || seen.gate.get() == Gate::Reached).await;
        self.add(messages);
        seen.gate.set(Gate::Open);
    }

    fn start(&self, consumer: &Consumer<E::Transactions>, seen: &Rc<Seen>) -> Running {
        Running::start::<E>(consumer, seen, &self.log)
    }

    fn add(&self, messages: impl IntoIterator<Item = Message>) {
        messages.into_iter().for_each(|message| self.log.add(message));
    }

    async fn effects(&self, key: &str) -> String {
        self.db.texts("effects", "number", "payload", &format!("name = '{key}'")).await
    }

    async fn until_effects(&self, key: &str, expected: &str) {
        let start = Instant::now();
        while self.effects(key).await != expected {
            assert!(start.elapsed().as_secs() < 60, "{key}: {}, not {expected}", self.effects(key).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn dead(&self) -> String {
        let column = async |name| self.db.texts("onceward_dead_letters", "number", name, "1 = 1").await;
        let (payloads, states) = (column("payload").await, column("state").await);
        let both = payloads.split(' ').zip(states.split(' '));
        both.map(|(payload, state)| format!("{payload} {state}")).collect::<Vec<_>>().join(", ")
    }

    async fn until_dead(&self, expected: &str) {
        let start = Instant::now();
        while self.dead().await != expected {
            assert!(start.elapsed().as_secs() < 60, "{}, not {expected}", self.dead().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The source was told of everything up to here.
    async fn until_acknowledged(&self, count: usize) {
        until("acknowledged", || self.log.state().handled.len() == count).await;
        let mut handled = self.log.state().handled.clone();
        handled.sort_unstable();
        assert_eq!(handled, (1..=i64::try_from(count).unwrap()).collect::<Vec<i64>>(), "each of them once");
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 60, "never {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// With one transaction at a time.
fn one_at_a_time() -> ConsumerOptions {
    options().with_concurrency(1)
}

fn numbers(range: std::ops::Range<u32>) -> String {
    range.map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
}

/// The effects: a row each, without any protection against a second one.
async fn note<E: Engine>(batch: &[Received], tx: &mut E::Tx) -> Result<(), Failure> {
    let places = match tx.dialect() {
        Dialect::Postgres => "$1, $2, $3",
        _ => "?, ?, ?",
    };
    let insert = format!("INSERT INTO effects (name, payload, id) VALUES ({places})");
    for Received { message, .. } in batch {
        let payload = String::from_utf8_lossy(message.payload()).into_owned();
        // Tables of a test have any character set.
        let key = message.ordering_key().unwrap_or("none");
        let key = if key.is_ascii() { key } else { "other" };
        tx.fetch(&insert, &[Value::Text(key), Value::Text(&payload), Value::Text(message.id())]).await?;
    }
    Ok(())
}

async fn handle<E: Engine>(
    seen: &Seen,
    log: &Log,
    batch: Vec<Received>,
    mut tx: E::Tx,
) -> Result<(), Failure> {
    seen.sizes.borrow_mut().push(batch.len());
    if let [one] = &batch[..] {
        let payload = String::from_utf8_lossy(one.message.payload()).into_owned();
        seen.alone.borrow_mut().entry(payload).or_default().push(one.tries);
    }
    let any = |name: &[u8]| batch.iter().any(|received| received.message.payload().starts_with(name));
    if any(b"gate") {
        seen.gate.set(Gate::Reached);
        while seen.gate.get() != Gate::Open || !log.state().is_read_out {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // What was read is in the channel; while this is pending, the consumer takes it from there.
        tokio::task::yield_now().await;
    }
    note::<E>(&batch, &mut tx).await?;
    if seen.hangs.get() && !any(b"gate") {
        seen.is_hanging.set(true);
        std::future::pending::<()>().await;
    }
    if seen.is_broken.get() && any(b"bad") {
        return Err(Failure::transient("it is bad"));
    }
    if any(b"permanent") {
        return Err(Failure::permanent("it will never do"));
    }
    assert!(!any(b"panic"), "a bug");
    Ok(())
}

/// A consumer in a task, until it is stopped.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start<E: Engine>(consumer: &Consumer<E::Transactions>, seen: &Rc<Seen>, log: &Log) -> Self {
        let (consumer, seen, log) = (consumer.clone(), seen.clone(), log.clone());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::task::spawn_local(async move {
            let handler = move |batch: Vec<Received>, tx: E::Tx| {
                let (seen, log) = (seen.clone(), log.clone());
                async move { handle::<E>(&seen, &log, batch, tx).await }
            };
            consumer.handle_batches_until(async { drop(stopped.await) }, handler).await.unwrap();
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// As if the process ended without warning.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn every_message_of_a_batch_has_one_effect_in_order<E: Engine>() {
    locally(async {
        for concurrency in [1, 4] {
            let Some(shop) = Shop::<E>::fresh().await else { return };
            let consumer = shop.consumer(options().with_concurrency(concurrency)).await;
            let seen = Rc::new(Seen::default());
            let running = shop.start(&consumer, &seen);
            let all: Vec<Message> =
                (0..10).flat_map(|n| (0..6).map(move |key| order(&format!("k{key}"), n))).collect();
            // Messages without a key have no order, and keys have any characters.
            let keyless = ["x", "y"].map(|text| Message::new("orders.placed", text));
            let strange = (0..3).map(|n| order("ß\",] 日本 ", n)).chain([order("'\\\"", 1)]);
            let copies = all[..20].to_vec();
            shop.add_together(&seen, all.into_iter().chain(copies).chain(keyless).chain(strange)).await;
            shop.until_acknowledged(87).await;
            running.stop().await;
            for key in 0..6 {
                assert_eq!(shop.effects(&format!("k{key}")).await, numbers(0..10));
            }
            assert_eq!(shop.effects("other").await, numbers(0..3));
            let counts = consumer.counts();
            assert_eq!((counts.handled, counts.duplicates, counts.failed), (67, 20, 0), "{counts:?}");
            assert!(counts.batches > 0 && counts.batches_repeated == 0, "{counts:?}");
            let sizes = seen.sizes.borrow().clone();
            assert!(concurrency > 1 || sizes.contains(&32), "full batches: {sizes:?}");
            assert_eq!(shop.db.sql("SELECT count(*) FROM effects").await, "67");
            assert_eq!(
                shop.db.sql("SELECT count(*) FROM onceward_receipts WHERE state = 'done'").await,
                "67"
            );
            assert_eq!(shop.db.sql("SELECT count(*) FROM onceward_receipts").await, "67");
            assert_eq!(shop.db.sql("SELECT count(*) FROM onceward_tries").await, "0");
        }
    })
    .await;
}

async fn several_of_one_key_are_in_one_batch_in_their_order<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let consumer = shop.consumer(one_at_a_time().with_batch_max(10)).await;
        let seen = Rc::new(Seen::default());
        let running = shop.start(&consumer, &seen);
        shop.add_together(&seen, (0..40).map(|n| order("a", n))).await;
        shop.until_acknowledged(41).await;
        running.stop().await;
        assert_eq!(shop.effects("a").await, numbers(0..40));
        assert_eq!(*seen.sizes.borrow(), [1, 10, 10, 10, 10]);
    })
    .await;
}

async fn a_failed_batch_is_repeated_one_by_one_and_only_what_fails_alone_is_charged<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let (consumer, seen) = (shop.consumer(one_at_a_time()).await, Rc::new(Seen::default()));
        seen.is_broken.set(true);
        let running = shop.start(&consumer, &seen);
        let (bad, c) = (order("a", "bad"), order("c", 1));
        let all = [order("a", 1), order("b", 1), bad, c, order("a", 3), order("b", 2)];
        shop.add_together(&seen, all).await;
        shop.until_dead("bad dead, 3 behind").await;
        shop.until_acknowledged(7).await;
        assert_eq!(shop.effects("a").await, "1");
        assert_eq!((shop.effects("b").await, shop.effects("c").await), ("1 2".into(), "1".into()));
        let dead = consumer.dead_letters().list(&DeadLetterFilter::default(), 0, 10).await.unwrap();
        assert_eq!((dead[0].tries, &*dead[0].error), (3, "it is bad"));
        // Three tries by itself, and none before was charged to it or to a neighbour.
        assert_eq!(seen.alone.borrow()["bad"], [0, 1, 2]);
        let charged =
            seen.alone.borrow().iter().any(|(name, tries)| name != "bad" && tries.iter().any(|n| *n > 0));
        assert!(!charged, "{:?}", seen.alone.borrow());
        let counts = consumer.counts();
        assert_eq!((counts.handled, counts.failed, counts.dead, counts.parked), (5, 2, 1, 1), "{counts:?}");
        assert_eq!((counts.batches, counts.batches_repeated), (0, 1), "{counts:?}");
        assert_eq!(shop.db.sql("SELECT count(*) FROM onceward_tries").await, "0");
        // After the fix, in order.
        seen.is_broken.set(false);
        consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap();
        shop.until_effects("a", "1 bad 3").await;
        shop.add([order("a", 4)]);
        shop.until_effects("a", "1 bad 3 4").await;
        running.stop().await;
    })
    .await;
}

async fn a_panic_and_a_permanent_failure_harm_no_neighbour<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let skipping = one_at_a_time().with_on_dead(OnDead::Skip);
        let (consumer, seen) = (shop.consumer(skipping).await, Rc::new(Seen::default()));
        let running = shop.start(&consumer, &seen);
        let (panics, fails) = (order("p", "panic"), order("q", "permanent"));
        shop.add_together(&seen, [order("a", 1), panics, order("b", 1), fails, order("c", 1)]).await;
        shop.until_acknowledged(6).await;
        running.stop().await;
        assert_eq!(consumer.counts().batches_repeated, 1);
        for key in ["a", "b", "c"] {
            assert_eq!(shop.effects(key).await, "1");
        }
        let mut dead = consumer.dead_letters().list(&DeadLetterFilter::default(), 0, 10).await.unwrap();
        dead.sort_by_key(|letter| letter.tries);
        let said: Vec<(u32, &str)> = dead.iter().map(|letter| (letter.tries, &*letter.error)).collect();
        assert_eq!(said, [(1, "it will never do"), (3, "the handler panicked")]);
    })
    .await;
}

async fn a_replay_in_batches_has_no_second_effect<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let (first, second): (Vec<_>, Vec<_>) = (
            (0..20).map(|n| order(&format!("k{}", n % 5), n)).collect(),
            (20..30).map(|n| order("new", n)).collect(),
        );
        let (consumer, seen) = (shop.consumer(one_at_a_time()).await, Rc::new(Seen::default()));
        let running = shop.start(&consumer, &seen);
        shop.add_together(&seen, first).await;
        shop.until_acknowledged(21).await;
        running.stop().await;
        assert_eq!(consumer.counts().batches, 1);
        // The source delivers everything again, before what is new.
        shop.db.sql("UPDATE onceward_parts SET position = 0").await;
        shop.add(second);
        seen.sizes.borrow_mut().clear();
        let running = shop.start(&consumer, &seen);
        shop.until_effects("new", &numbers(20..30)).await;
        until("all duplicates", || consumer.counts().duplicates == 21).await;
        running.stop().await;
        assert_eq!(consumer.counts().handled, 31);
        assert_eq!(shop.db.sql("SELECT count(*) FROM effects").await, "31");
        assert_eq!(seen.sizes.borrow().iter().sum::<usize>(), 10, "the handler is given no duplicate");
    })
    .await;
}

async fn duplicates_amid_a_batch_are_left_out_and_not_overtaken<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let (old, older) = (order("a", 1), order("b", 1));
        shop.add([old.clone(), older.clone()]);
        let (consumer, seen) = (shop.consumer(one_at_a_time()).await, Rc::new(Seen::default()));
        let running = shop.start(&consumer, &seen);
        shop.until_acknowledged(2).await;
        seen.sizes.borrow_mut().clear();
        let all = [order("n", 1), old.clone(), order("n", 2), older, order("m", 1)];
        shop.add_together(&seen, all).await;
        shop.until_acknowledged(8).await;
        assert_eq!(*seen.sizes.borrow(), [1, 3], "one transaction, without the duplicates");
        seen.sizes.borrow_mut().clear();
        shop.add_together(&seen, [order("n", 3), old, order("a", 2), order("m", 2)]).await;
        shop.until_acknowledged(13).await;
        running.stop().await;
        assert_eq!(*seen.sizes.borrow(), [1, 2, 1], "the successor of a duplicate does not overtake it");
        for (key, expected) in [("a", "1 2"), ("b", "1"), ("n", "1 2 3"), ("m", "1 2")] {
            assert_eq!(shop.effects(key).await, expected);
        }
        let counts = consumer.counts();
        assert_eq!((counts.handled, counts.duplicates, counts.batches_repeated), (10, 3, 0), "{counts:?}");
    })
    .await;
}

async fn copies_and_conflicts_in_a_batch_are_decided_alone_and_not_overtaken<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let (consumer, seen) = (shop.consumer(one_at_a_time()).await, Rc::new(Seen::default()));
        let running = shop.start(&consumer, &seen);
        let same_id = |key, text| order(key, text).with_id("m");
        let all = [order("x", 0), same_id("a", 1), same_id("a", 1), same_id("a", 2), order("a", 3)];
        shop.add_together(&seen, all.into_iter().chain([order("b", 1), same_id("b", 9)])).await;
        shop.until_acknowledged(8).await;
        running.stop().await;
        assert_eq!((shop.effects("a").await, shop.effects("b").await), ("1".into(), "1".into()));
        let mut dead: Vec<String> = shop.dead().await.split(", ").map(str::to_owned).collect();
        dead.sort();
        assert_eq!(dead, ["2 dead", "3 behind", "9 dead"]);
        let counts = consumer.counts();
        assert_eq!(
            (counts.handled, counts.duplicates, counts.dead, counts.parked),
            (4, 1, 2, 1),
            "{counts:?}"
        );
        assert_eq!(*seen.sizes.borrow(), [1, 3], "the batch is what is left of it");
        assert_eq!((counts.batches, counts.batches_repeated), (1, 0), "{counts:?}");
    })
    .await;
}

async fn what_waits_behind_a_dead_letter_is_not_in_a_batch<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        shop.add([order("a", "bad")]);
        let (consumer, seen) = (shop.consumer(one_at_a_time()).await, Rc::new(Seen::default()));
        seen.is_broken.set(true);
        let running = shop.start(&consumer, &seen);
        shop.until_dead("bad dead").await;
        running.stop().await;
        seen.sizes.borrow_mut().clear();
        let running = shop.start(&consumer, &seen);
        // First in the batch, between others and last; with neighbours that are handled together.
        let all = [order("a", 2), order("b", 1), order("a", 3), order("c", 1), order("d", 1), order("a", 4)];
        shop.add_together(&seen, all).await;
        shop.until_dead("bad dead, 2 behind, 3 behind, 4 behind").await;
        shop.until_acknowledged(8).await;
        running.stop().await;
        assert_eq!(shop.effects("a").await, "");
        for key in ["b", "c", "d"] {
            assert_eq!(shop.effects(key).await, "1");
        }
        assert_eq!(*seen.sizes.borrow(), [1, 3], "what is parked is not given to the handler");
    })
    .await;
}

const FENCE: &str = "SELECT fence FROM onceward_parts WHERE part = 0";

async fn a_batch_under_a_lost_fence_has_no_effect<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        // It believes in its lease for the whole test.
        let consumer = shop.consumer(options().with_lease(Duration::from_mins(10))).await;
        let seen = Rc::new(Seen::default());
        let running = shop.start(&consumer, &seen);
        shop.db.until("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL", "1").await;
        shop.db.sql("UPDATE onceward_parts SET fence = fence + 1, owner = 'another'").await;
        if shop.db.url.starts_with("mysql:") {
            shop.db.sql("UPDATE onceward_fences SET fence = fence + 1").await;
        }
        shop.add((0..8).map(|n| order(&format!("k{}", n % 4), n)));
        until("fenced off", || consumer.counts().fenced_off == 8).await;
        for table in ["effects", "onceward_receipts", "onceward_dead_letters", "onceward_tries"] {
            assert_eq!(shop.db.sql(&format!("SELECT count(*) FROM {table}")).await, "0", "{table}");
        }
        assert!(seen.sizes.borrow().is_empty() && shop.log.state().handled.is_empty());
        running.stop().await;
        assert_eq!(shop.db.sql("SELECT owner FROM onceward_parts").await, "another");
    })
    .await;
}

async fn a_part_is_not_taken_while_its_batch_can_commit<E: Engine>() {
    if E::ONE_WRITER {
        return; // A takeover is a write, too.
    }
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let (consumer, seen) = (shop.consumer(one_at_a_time()).await, Rc::new(Seen::default()));
        seen.hangs.set(true);
        let running = shop.start(&consumer, &seen);
        shop.add_together(&seen, (0..4).map(|n| order(&format!("k{n}"), n))).await;
        until("in the handler", || seen.is_hanging.get()).await;
        assert_eq!(*seen.sizes.borrow(), [1, 4], "one batch");
        let of_part = if shop.db.url.starts_with("mysql:") {
            "SELECT fence FROM onceward_fences WHERE part = 0 FOR UPDATE SKIP LOCKED"
        } else {
            "SELECT fence FROM onceward_parts WHERE part = 0 FOR UPDATE SKIP LOCKED"
        };
        assert_eq!(shop.db.sql(of_part).await, "", "the batch has locked its part");
        running.kill().await;
        shop.db.until(of_part, "1").await;
        assert_eq!(shop.db.sql("SELECT count(*) FROM effects").await, "1", "that of the gate");
    })
    .await;
}

async fn an_abort_in_a_batch_leaves_nothing<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        let seen = Rc::new(Seen::default());
        seen.hangs.set(true);
        let running = shop.start(&shop.consumer(short_lease().with_concurrency(1)).await, &seen);
        shop.add_together(&seen, (0..12).map(|n| order(&format!("k{}", n % 3), n))).await;
        until("in the handler", || seen.is_hanging.get()).await;
        running.kill().await;
        assert_eq!(*seen.sizes.borrow(), [1, 12]);
        assert!(
            shop.log.state().handled.iter().all(|position| *position == 1),
            "acknowledged before the commit"
        );
        // It may have been told of the gate, and of the gate again.
        shop.log.state().handled.clear();
        seen.hangs.set(false);
        let second = shop.consumer(short_lease()).await;
        let running = shop.start(&second, &seen);
        for key in 0..3 {
            let expected: Vec<String> = (0..4).map(|n| (key + 3 * n).to_string()).collect();
            shop.until_effects(&format!("k{key}"), &expected.join(" ")).await;
        }
        until("acknowledged", || (2..=13).all(|position| shop.log.state().handled.contains(&position))).await;
        running.stop().await;
        assert_eq!(second.counts().handled, 12);
        assert_eq!(shop.db.sql("SELECT count(*) FROM onceward_tries").await, "0");
    })
    .await;
}

async fn an_end_after_the_commit_repeats_no_effect<E: Engine>() {
    locally(async {
        let Some(shop) = Shop::<E>::fresh().await else { return };
        // What is handled is told to nobody, and the position is written with the lease, which is renewed later.
        shop.log.state().failures = usize::MAX;
        let first = shop.consumer(one_at_a_time().with_lease(Duration::from_mins(10))).await;
        let seen = Rc::new(Seen::default());
        let running = shop.start(&first, &seen);
        shop.add_together(&seen, (0..20).map(|n| order(&format!("k{}", n % 4), n))).await;
        until("all committed", || first.counts().handled == 21).await;
        running.kill().await;
        assert_eq!(first.counts().batches, 1);
        let position = shop.db.sql("SELECT position FROM onceward_parts").await;
        assert_eq!(position, "0", "the position was written before the end");
        shop.log.state().failures = 0;
        // As if the lease had lapsed.
        let fence = shop.db.sql(FENCE).await;
        let past = match shop.db.url.split(':').next() {
            Some("mysql") => "UTC_TIMESTAMP(6) - INTERVAL 1 SECOND",
            Some("sqlite") => "1",
            _ => "clock_timestamp() - interval '1 second'",
        };
        shop.db.sql(&format!("UPDATE onceward_parts SET until = {past}")).await;
        shop.db.sql("DELETE FROM onceward_members").await;
        let second = shop.consumer(options()).await;
        let running = shop.start(&second, &Rc::new(Seen::default()));
        shop.until_acknowledged(21).await;
        assert_ne!(shop.db.sql(FENCE).await, fence);
        running.stop().await;
        assert_eq!((second.counts().handled, second.counts().duplicates), (0, 21));
        assert_eq!(shop.db.sql("SELECT count(*) FROM effects").await, "21");
    })
    .await;
}
