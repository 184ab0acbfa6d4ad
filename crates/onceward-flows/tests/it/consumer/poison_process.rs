//! A payload that aborts its process, under a supervisor that starts the process again: with real processes.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use onceward_flows::postgres::FlowTables;
use onceward_flows::{Consumer, Outbox, OutboxSource, Received};
use onceward_stores::sql::postgres::PostgresTx;

use super::{Stock, consumer_database, locally, note, order, short_lease};

/// The database of the process, and whether its handler takes batches.
const DATABASE: &str = "ONCEWARD_POISONED";
const BATCHES: &str = "ONCEWARD_POISONED_BATCHES";
const ABORTED: i32 = 6;
const DEAD: &str = "SELECT coalesce(string_agg(convert_from(payload, 'UTF8') || ': ' || error, ''), '')
    FROM onceward_dead_letters";

fn process(url: &str, batches: bool) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "consumer::poison_process::process_that_consumes", "--nocapture"])
        .envs([(DATABASE, url), (BATCHES, if batches { "yes" } else { "" })])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ends it when its input closes, without a kill.
fn stop(mut child: Child) -> ExitStatus {
    drop(child.stdin.take());
    child.wait().unwrap()
}

#[tokio::test]
async fn a_payload_that_aborts_its_process_is_dead_after_five_deaths() {
    aborts(false).await;
}

#[tokio::test]
async fn a_payload_that_aborts_its_process_in_a_batch_is_dead_after_five_deaths() {
    aborts(true).await;
}

async fn aborts(batches: bool) {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let all = [order("a", 1), order("b", 1), order("poison", "poison"), order("c", 1), order("a", 2)];
        stock.commit(all).await;
        let mut deaths = 0;
        let running = loop {
            let (mut child, start) = (process(&stock.database.url(), batches), Instant::now());
            let died = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if !stock.database.sql(DEAD).is_empty() {
                    break None;
                }
                assert!(start.elapsed().as_secs() < 60, "it neither dies nor goes on after {deaths} deaths");
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            let Some(status) = died else { break child };
            assert_eq!(status.signal(), Some(ABORTED), "{status}");
            deaths += 1;
            assert!(deaths <= 5, "it was not recognised");
        };
        assert_eq!(deaths, 5);
        assert_eq!(stock.database.sql(DEAD), "poison: it ended its process 5 times");
        stock.commit([order("c", 2)]).await;
        for (key, expected) in [("a", "1 2"), ("b", "1"), ("c", "1 2")] {
            stock.until_effects(key, expected).await;
        }
        assert!(stop(running).success());
        assert_eq!(stock.effects("poison"), "", "no effect was committed before a death");
        assert_eq!(stock.database.sql("SELECT count(*) FROM effects"), "5");
    })
    .await;
}

/// The process above is this test, in another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_consumes() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let (closed, stopped) = tokio::sync::oneshot::channel();
    // When the test is gone, so is its input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        let _ = closed.send(());
    });
    let tables = FlowTables::open(&url).await.unwrap();
    let database = consumer_database(&url, &tables).await.unwrap();
    let source = OutboxSource::new(tables, &Outbox::new(), 1);
    let consumer = Consumer::new("stock", source, database).with_options(short_lease());
    let handle = async |batch: Vec<Received>, tx: PostgresTx| {
        for received in &batch {
            note(received, &tx).await?;
            if &received.message.payload()[..] == b"poison" {
                std::process::abort();
            }
        }
        Ok(())
    };
    let stop = async { drop(stopped.await) };
    if std::env::var(BATCHES).is_ok_and(|batches| !batches.is_empty()) {
        consumer.handle_batches_until(stop, handle).await.unwrap();
    } else {
        consumer.handle_until(stop, async |one, tx| handle(vec![one], tx).await).await.unwrap();
    }
}
