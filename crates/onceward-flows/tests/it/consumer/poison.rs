//! A message that ends its process is recognised; its neighbours, and clean stops, are not blamed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use onceward_flows::{DeadLetterFilter, Failure, Received};
use onceward_stores::sql::postgres::PostgresTx;

use super::log::Log;
use super::{Running, Stock, locally, note, options, order, short_lease};

const DEAD: &str = "SELECT coalesce(string_agg(convert_from(payload, 'UTF8') || ': ' || error, ''), '')
    FROM onceward_dead_letters";

#[tokio::test]
async fn a_message_that_ends_its_process_is_given_up_after_five_deaths() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        stock.commit([order("a", 1), order("poison", "poison"), order("b", 1)]).await;
        let mut deaths = 0;
        loop {
            let consumer = stock.consumer().with_options(short_lease());
            let dies = Rc::new(Cell::new(false));
            let reached = dies.clone();
            let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
                let reached = reached.clone();
                async move {
                    if &received.message.payload()[..] == b"poison" {
                        reached.set(true);
                        std::future::pending::<()>().await;
                    }
                    note(&received, &tx).await
                }
            });
            while !dies.get() && stock.database.sql(DEAD).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if !dies.get() {
                running.stop().await;
                break;
            }
            running.kill().await;
            deaths += 1;
            assert!(deaths <= 5, "it was not recognised");
        }
        assert_eq!(deaths, 5);
        assert_eq!(stock.database.sql(DEAD), "poison: it ended its process 5 times");
        let running = Running::start(&stock.consumer());
        stock.until_effects("a", "1").await;
        stock.until_effects("b", "1").await;
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn clean_stops_leave_no_mark() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        for number in 0..8 {
            let running = Running::start(&stock.consumer());
            stock.commit([order("a", number)]).await;
            stock.until("SELECT count(*) FROM onceward_outbox", "0").await;
            running.stop().await;
            assert_eq!(stock.database.sql("SELECT count(*) FROM onceward_tries"), "0");
        }
        assert_eq!(stock.effects("a"), "0 1 2 3 4 5 6 7");
    })
    .await;
}

/// Each time the former owner has ended without warning, so that the message is tried with a mark; and each time the process
/// is asked to stop during the try.
#[tokio::test]
async fn clean_stops_during_marked_tries_count_nothing() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let log = Log::new("orders");
        let lapse =
            "UPDATE onceward_parts SET owner = 'gone', until = clock_timestamp() - interval '1 second'";
        let mut patient = options();
        patient.tries_max = 100;
        let consumer = stock.consumer_of(log.clone()).with_options(patient);
        Running::start(&consumer).stop().await; // makes the parts
        log.add(order("a", 1));
        for round in 1..=6 {
            stock.database.sql(lapse);
            let (begun, go_on) = (Rc::new(tokio::sync::Notify::new()), Rc::new(tokio::sync::Notify::new()));
            let (inside, waits) = (begun.clone(), go_on.clone());
            let running = Running::start_with(&consumer, move |_: Received, _: PostgresTx| {
                let (inside, waits) = (inside.clone(), waits.clone());
                async move {
                    inside.notify_one();
                    waits.notified().await;
                    Err(Failure::transient("stopped before the end"))
                }
            });
            begun.notified().await;
            let marks = "SELECT coalesce(max(started), 0) FROM onceward_tries";
            assert_eq!(stock.database.sql(marks), "1", "round {round}: it is tried with one mark");
            let stopping = tokio::task::spawn_local(running.stop());
            tokio::task::yield_now().await;
            go_on.notify_one();
            stopping.await.unwrap();
            assert_eq!(stock.database.sql(marks), "0", "round {round}: the mark was taken back");
        }
        assert_eq!(stock.database.sql(DEAD), "");
        stock.database.sql(lapse);
        let running = Running::start(&consumer);
        stock.until_effects("a", "1").await;
        running.stop().await;
    })
    .await;
}

/// A handler that refuses `bad` until the flag is set, and then ends its process with it.
#[tokio::test]
async fn a_dead_letter_whose_retry_ends_its_process_is_recognised() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let log = Log::new("orders");
        log.add(order("a", "bad"));
        log.add(order("a", 2));
        let refuses = async |_: Received, _: PostgresTx| Err(Failure::permanent("it is bad"));
        let consumer = stock.consumer_of(log.clone()).with_options(short_lease());
        let running = Running::start_with(&consumer, refuses);
        stock.until("SELECT count(*) FROM onceward_dead_letters", "2").await;
        running.stop().await;
        assert_eq!(consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap(), 1);
        let mut deaths = 0;
        let given_up =
            || stock.database.sql("SELECT count(*) FROM onceward_dead_letters WHERE error LIKE 'it ended%'");
        while deaths < 8 {
            let (dies, reached) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let entered = reached.clone();
            let running = Running::start_with(&consumer, move |_: Received, _: PostgresTx| {
                let entered = entered.clone();
                async move {
                    entered.set(true);
                    std::future::pending().await
                }
            });
            while !reached.get() && given_up() == "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            dies.set(reached.get());
            if !dies.get() {
                running.stop().await;
                break;
            }
            running.kill().await;
            deaths += 1;
        }
        assert_eq!(deaths, 5);
        assert_eq!(stock.database.sql("SELECT state FROM onceward_sequences"), "parked");
    })
    .await;
}

#[tokio::test]
async fn after_an_unclean_end_dead_letters_are_retried_and_suspicion_ends() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let log = Log::new("orders");
        log.add(order("a", "bad"));
        let consumer = stock.consumer_of(log.clone()).with_options(short_lease());
        let running = Running::start_with(&consumer, async |_: Received, _: PostgresTx| {
            Err(Failure::permanent("it is bad"))
        });
        stock.until("SELECT count(*) FROM onceward_dead_letters", "1").await;
        running.kill().await;
        let running = Running::start(&consumer);
        consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap();
        stock.until_effects("a", "bad").await;
        // When nothing has come for a moment, messages are no longer marked.
        let marked = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'onceward_tries'";
        let mut before = stock.database.sql(marked);
        for n in 0.. {
            let key = format!("k{n}");
            log.add(order(&key, n));
            stock.until_effects(&key, &n.to_string()).await;
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            let now = stock.database.sql(marked);
            if std::mem::replace(&mut before, now.clone()) == now {
                break;
            }
            assert!(n < 20, "still marked: {now}");
        }
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn one_suspect_at_a_time_is_tried_in_a_process() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let keys: Vec<String> = (0..12).map(|n| format!("k{n}")).collect();
        stock.commit(keys.iter().map(|key| order(key, 1))).await;
        let consumer = stock.consumer().with_options(short_lease());
        let running =
            Running::start_with(&consumer, async |_: Received, _: PostgresTx| std::future::pending().await);
        stock.until("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL", "4").await;
        running.kill().await;
        let (inside, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (enters, notes) = (inside.clone(), most.clone());
        let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
            let (inside, most) = (enters.clone(), notes.clone());
            async move {
                inside.set(inside.get() + 1);
                most.set(most.get().max(inside.get()));
                tokio::time::sleep(Duration::from_millis(20)).await;
                let result = note(&received, &tx).await;
                inside.set(inside.get() - 1);
                result
            }
        });
        for key in &keys {
            stock.until_effects(key, "1").await;
        }
        running.stop().await;
        assert_eq!(most.get(), 1, "several were tried with a mark at the same time");
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_lapses_without_a_death_leaves_no_mark() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let consumer = stock.consumer().with_options(short_lease());
        let running = Running::start(&consumer);
        stock.until("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL", "4").await;
        running.kill().await;
        stock.until("SELECT count(*) FROM onceward_parts WHERE until < clock_timestamp()", "4").await;
        // It takes over as if there had been a death, and then loses its partitions to another process without a death.
        let mut long = options();
        long.lease = Duration::from_secs(600);
        let consumer = stock.consumer().with_options(long);
        let running = Running::start(&consumer);
        stock
            .until(
                "SELECT count(*) FROM onceward_parts WHERE until > clock_timestamp() + interval '9 minutes'",
                "4",
            )
            .await;
        stock.database.sql("UPDATE onceward_parts SET fence = fence + 1, owner = 'another'");
        stock.commit([order("a", 1)]).await;
        while consumer.counts().fenced_off == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stock.database.sql("SELECT coalesce(max(started), 0) FROM onceward_tries"), "0");
        running.kill().await;
    })
    .await;
}
