//! Messages in transactions of the drivers themselves, and in `transact`, on each engine.

use std::time::Duration;

use onceward::{Answer, Ask, Fingerprint, Id, Lease, Outcome, Policy};
use onceward_flows::{MemoryPublisher, Message, Messages, Outbox};
use onceward_stores::mysql_async::{self, TxOpts};
use onceward_stores::rusqlite;
use onceward_stores::sql::SqlTransaction;

use super::{Db, Engine, MariaDb, Sqlite, on_every_engine};
use crate::relay::publishing::{Running, options};

on_every_engine!(transact_writes_messages_once_and_wakes_the_relay);

const COUNT: &str = "SELECT count(*) FROM onceward_outbox";

fn messages() -> Vec<Message> {
    (0..9).map(|n| Message::new("t", vec![n]).with_ordering_key(format!("k{}", n % 3))).collect()
}

#[tokio::test]
async fn a_transaction_of_mysql_async_is_joined() {
    let Some(db) = Db::<MariaDb>::fresh().await else { return };
    let pool = mysql_async::Pool::new(db.url.as_str());
    let mut conn = pool.get_conn().await.unwrap();
    for (commits, expected) in [(false, "0"), (true, "9")] {
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let wake = Outbox::new().add_all(&mut tx, messages()).await.unwrap();
        assert_eq!(db.sql(COUNT).await, "0", "nobody sees them before the commit");
        if commits {
            tx.commit().await.unwrap();
            wake.fire();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(db.sql(COUNT).await, expected);
    }
    drop(conn);
    pool.disconnect().await.unwrap();
}

#[tokio::test]
async fn a_transaction_of_rusqlite_is_joined() {
    let Some(db) = Db::<Sqlite>::fresh().await else { return };
    let mut connection = rusqlite::Connection::open(&db.url["sqlite:".len()..]).unwrap();
    for (end, expected) in [("ROLLBACK", "0"), ("COMMIT", "9")] {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let wake = Outbox::new().add_all(&mut connection, messages()).await.unwrap();
        assert_eq!(db.sql(COUNT).await, "0", "nobody sees them before the commit");
        connection.execute_batch(end).unwrap();
        wake.fire();
        assert_eq!(db.sql(COUNT).await, expected);
    }
}

async fn transact_writes_messages_once_and_wakes_the_relay<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    db.sql("CREATE TABLE orders (id varchar(20))").await;
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    // It looks again only when it is woken.
    let mut options = options();
    (options.poll_max, options.lease) = (Duration::from_secs(3600), Duration::from_secs(3600));
    let running = Running::start_with(&db.tables, &outbox, publisher.clone(), options);
    while running.relay.counts().reads < 12 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let database = db.consumer_database().await;
    let ask = || Ask::new(Id::new("a", "order", "1").unwrap(), Fingerprint::of(b"1"), Policy::http());
    let order = async |_: Lease, mut tx: E::Tx, messages: Messages| {
        messages.add(Message::new("orders.placed", "1").with_ordering_key("a"));
        messages.add(Message::new("orders.placed", "2").with_ordering_key("a"));
        tx.fetch("INSERT INTO orders VALUES ('1')", &[]).await?;
        Ok(Outcome::succeeded("placed"))
    };
    for replayed in [false, true] {
        let answer = outbox.transact(&database.onceward, &database.transactions, ask(), order).await.unwrap();
        let Answer::Completed(completed) = answer else { panic!("{answer:?}") };
        assert_eq!(completed.replayed, replayed);
        tokio::time::timeout(Duration::from_secs(30), running.relay.drained())
            .await
            .expect("it was woken")
            .unwrap();
    }
    let payloads: Vec<_> = publisher.published().iter().map(|message| message.payload().clone()).collect();
    assert_eq!(payloads, ["1", "2"], "a duplicate adds nothing");
    assert_eq!(db.sql("SELECT count(*) FROM orders").await, "1");
    running.stop().await;
}
