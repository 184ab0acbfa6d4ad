//! Several processes: partitions are shared, and a former owner has no effect.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_flows::OutboxSource;

use super::{Running, Stock, locally, order, short_lease};

const OWNERS: &str = "SELECT coalesce(string_agg(count::text, ' ' ORDER BY count), '') FROM (
    SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL GROUP BY owner) AS owners";

#[tokio::test]
async fn partitions_are_shared_and_taken_over() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let consumer = || stock.consumer().with_options(short_lease());
        let (one, two) = (consumer(), consumer());
        let first = Running::start(&one);
        stock.until(OWNERS, "4").await;
        let second = Running::start(&two);
        stock.until(OWNERS, "2 2").await;
        stock.commit((0..10).flat_map(|n| (0..12).map(move |key| order(&format!("k{key}"), n)))).await;
        while one.counts().handled + two.counts().handled < 30 {
            tokio::task::yield_now().await;
        }
        first.kill().await;
        for key in 0..12 {
            stock.until_effects(&format!("k{key}"), "0 1 2 3 4 5 6 7 8 9").await;
        }
        stock.until(OWNERS, "4").await;
        assert!(two.counts().takeovers >= 2, "{:?}", two.counts());
        second.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_former_owner_has_no_effect_and_records_nothing() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let consumer = stock.consumer();
        let mut options = super::options();
        // It believes in its lease for the whole test.
        options.lease = Duration::from_secs(600);
        let consumer = consumer.with_options(options);
        let running = Running::start(&consumer);
        stock.until(OWNERS, "4").await;
        // Another process has taken over, as it would after a pause of this one.
        stock.database.sql("UPDATE onceward_parts SET fence = fence + 1, owner = 'another'");
        stock.commit([order("a", 1)]).await;
        while consumer.counts().fenced_off == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            stock
                .database
                .sql("SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM onceward_receipts)"),
            "0|0"
        );
        assert_eq!(
            stock.database.sql("SELECT count(*) FROM onceward_outbox"),
            "1",
            "it is still to be handled"
        );
        running.stop().await;
        assert_eq!(
            stock.database.sql("SELECT DISTINCT owner FROM onceward_parts"),
            "another",
            "it releases only its own"
        );
    })
    .await;
}

#[tokio::test]
async fn a_partition_is_not_taken_while_an_effect_of_its_former_owner_can_commit() {
    let Some(stock) = Stock::fresh().await else { return };
    locally(async {
        let running = Running::start(&stock.consumer().with_options(short_lease()));
        stock.until(OWNERS, "4").await;
        running.kill().await;
        // An effect that has compared the fence, and has not committed.
        let mut client = stock.database.client().await;
        let effect = client.transaction().await.unwrap();
        effect.query("SELECT fence FROM onceward_parts WHERE part = 2 FOR KEY SHARE", &[]).await.unwrap();
        let other = stock.consumer().with_options(short_lease());
        let running = Running::start(&other);
        while other.counts().takeovers < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stock.database.sql("SELECT fence FROM onceward_parts WHERE part = 2"), "1");
        effect.commit().await.unwrap();
        stock.until("SELECT fence FROM onceward_parts WHERE part = 2", "2").await;
        running.stop().await;
    })
    .await;
}

/// What is logged.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Takes what is logged in this thread until the guard is dropped.
    pub(super) fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Everything runs in the thread of the test, whose log it is.
#[tokio::test]
async fn a_source_with_one_partition_says_that_one_process_consumes() {
    let log = Log::default();
    let _guard = log.begin();
    locally(async {
        for (partitions, is_said) in [(2, false), (1, true)] {
            let Some(stock) = Stock::fresh().await else { return };
            let source = OutboxSource::new(stock.database.tables.clone(), &stock.outbox, partitions);
            let running = Running::start(&stock.consumer_of(source));
            stock.commit([order("a", 1)]).await;
            stock.until_effects("a", "1").await;
            running.stop().await;
            let line = "the source has one partition: one process consumes at a time";
            assert_eq!(log.text().contains(line), is_said, "{}", log.text());
        }
    })
    .await;
}
