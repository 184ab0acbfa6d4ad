//! Messages in transactions of several drivers, in `transact`, and what is refused.

use std::sync::Arc;

use onceward::{Answer, Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Stopped};
use onceward_flows::{Message, Messages, Outbox};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresStore, PostgresTransactions, PostgresTx};

use crate::support::Database;

const COUNT: &str = "SELECT count(*) FROM onceward_outbox";

#[tokio::test]
async fn rows_are_readable_and_come_with_the_commit() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, mut client) = (Outbox::new(), database.client().await);
    let message = || {
        Message::new("orders.placed", "the payload")
            .with_ordering_key("Müller")
            .with_header("trace", "7")
            .with_id("m-1")
    };
    let mut tx = client.transaction().await.unwrap();
    outbox.add_all(&mut tx, [message()]).await.unwrap().fire();
    tx.rollback().await.unwrap();
    assert_eq!(database.sql(COUNT), "0");

    let mut tx = client.transaction().await.unwrap();
    let wake = outbox.add_all(&mut tx, [message(), Message::new("t", "")]).await.unwrap();
    assert_eq!(database.sql(COUNT), "0", "nobody sees it before the commit");
    tx.commit().await.unwrap();
    wake.fire();
    let row = "SELECT id, topic, ordering_key, headers, convert_from(payload, 'UTF8') FROM onceward_outbox WHERE id = 'm-1'";
    assert_eq!(database.sql(row), r#"m-1|orders.placed|Müller|{"trace":"7"}|the payload"#);
    assert_eq!(database.sql("SELECT count(*) FROM onceward_outbox WHERE ordering_key IS NULL"), "1");
}

#[tokio::test]
async fn a_thousand_messages_keep_their_order_in_one_call() {
    let Some(database) = Database::fresh().await else { return };
    let mut client = database.client().await;
    let mut tx = client.transaction().await.unwrap();
    let messages = (0..1_000).map(|n| Message::new("t", n.to_string()).with_ordering_key("k"));
    let _ = Outbox::new().add_all(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
    let order =
        "SELECT string_agg(convert_from(payload, 'UTF8'), ',' ORDER BY position) FROM onceward_outbox";
    let expected: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    assert_eq!(database.sql(order), expected.join(","));
}

#[tokio::test]
async fn a_transaction_of_sqlx_is_joined() {
    let Some(database) = Database::fresh().await else { return };
    let pool = sqlx::PgPool::connect(&database.url()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let messages = (0..9).map(|n| Message::new("t", vec![n]).with_ordering_key(format!("k{}", n % 3)));
    let wake = Outbox::new().add_all(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
    wake.fire();
    assert_eq!(database.sql(COUNT), "9");
}

#[tokio::test]
async fn bad_messages_are_refused_before_anything_is_written() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, mut client) = (Outbox::new(), database.client().await);
    let mut tx = client.transaction().await.unwrap();
    let large = Message::new("t", vec![0; onceward_flows::PAYLOAD_BYTES_MAX + 1]);
    let error = outbox.add_all(&mut tx, [Message::new("t", ""), large]).await.unwrap_err();
    assert!(error.to_string().contains("store the content elsewhere"), "{error}");
    let many = (0..=onceward_flows::MESSAGES_MAX).map(|_| Message::new("t", ""));
    let error = outbox.add_all(&mut tx, many).await.unwrap_err();
    assert!(error.to_string().contains("at most 1000"), "{error}");
    tx.commit().await.unwrap();
    assert_eq!(database.sql(COUNT), "0");
}

#[tokio::test]
async fn a_database_without_the_tables_says_what_to_do() {
    let Some(server) = crate::servers::Postgres::shared() else { return };
    let mut client = crate::support::connect(&server.url(&server.fresh())).await;
    let mut tx = client.transaction().await.unwrap();
    let error = Outbox::new().add_all(&mut tx, [Message::new("t", "")]).await.unwrap_err();
    assert_eq!(error.kind(), onceward::ErrorKind::Foreign, "{error}");
}

#[tokio::test]
async fn foreign_tables_and_cached_numbers_are_refused() {
    let Some(server) = crate::servers::Postgres::shared() else { return };
    let name = server.fresh();
    server.sql(&name, "CREATE TABLE onceward_outbox (mine int)");
    let error = onceward_flows::postgres::FlowTables::open(&server.url(&name)).await.unwrap_err();
    assert!(error.to_string().contains("not made by onceward"), "{error}");

    let Some(database) = Database::fresh().await else { return };
    assert_eq!(database.tables.migrate().await.unwrap().from, 1, "a second one has nothing to do");
    database.sql("ALTER TABLE onceward_outbox ALTER position SET CACHE 20");
    let error = database.tables.migrate().await.unwrap_err();
    assert!(error.to_string().contains("SET CACHE 1"), "{error}");
}

#[tokio::test]
async fn transact_writes_the_messages_of_its_work_last_and_once() {
    let Some(database) = Database::fresh().await else { return };
    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let onceward = Onceward::new(Arc::new(store)).unwrap();
    let transactions = PostgresTransactions::open(&database.url(), 4).unwrap();
    database.sql("CREATE TABLE orders (id text)");
    let outbox = Outbox::new();
    let ask =
        |key: &str| Ask::new(Id::new("a", "order", key).unwrap(), Fingerprint::of(b"1"), Policy::http());
    let order = async |_: Lease, tx: PostgresTx, messages: Messages| {
        messages.add(Message::new("orders.placed", "1").with_ordering_key("a"));
        messages.add(Message::new("orders.placed", "2").with_ordering_key("a"));
        tx.execute("INSERT INTO orders VALUES ('1')", &[]).await?;
        Ok(Outcome::succeeded("placed"))
    };
    for replayed in [false, true] {
        let answer = outbox.transact(&onceward, &transactions, ask("1"), order).await.unwrap();
        let Answer::Completed(completed) = answer else { panic!("{answer:?}") };
        assert_eq!(completed.replayed, replayed);
        assert_eq!(database.sql(COUNT), "2", "a duplicate adds nothing");
    }
    // Work without an outcome, and work with a bad message: neither leaves anything.
    let stops = async |_: Lease, _: PostgresTx, messages: Messages| {
        messages.add(Message::new("orders.placed", "3"));
        Err::<Outcome, _>(Stopped::unknown("no"))
    };
    outbox.transact(&onceward, &transactions, ask("2"), stops).await.unwrap_err();
    let bad = async |_: Lease, tx: PostgresTx, messages: Messages| {
        tx.execute("INSERT INTO orders VALUES ('3')", &[]).await?;
        messages.add(Message::new("no topic", ""));
        Ok(Outcome::succeeded(""))
    };
    let error = outbox.transact(&onceward, &transactions, ask("3"), bad).await.unwrap_err();
    assert!(error.to_string().contains("is not a topic"), "{error}");
    assert_eq!(
        database.sql("SELECT (SELECT count(*) FROM onceward_outbox), (SELECT count(*) FROM orders)"),
        "2|1"
    );
}
