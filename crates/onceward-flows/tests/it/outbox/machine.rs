//! Messages and tasks that are attached to a change of state: they exist if and only if the change commits, and once.

use std::sync::Arc;

use onceward::receipt::Status;
use onceward::{Ask, Error, ErrorKind, Fingerprint, Id, Onceward, Policy};
use onceward_flows::{Message, Outbox};
use onceward_stores::sql::postgres::PostgresStore;
use onceward_stores::sql::{InTransaction, Machine, Moved, Options, Reason, Value};

use crate::support::Database;

fn task(order: &str) -> Result<Ask, Error> {
    let id = Id::new("shop", "mail", order)?;
    Ok(Ask::new(id, Fingerprint::of(order.as_bytes()), Policy::queue()).with_input(order.to_owned()))
}

fn orders(onceward: &Onceward, outbox: &Outbox) -> Machine {
    let (onceward, outbox) = (onceward.clone(), outbox.clone());
    Machine::builder("orders", "id", "state")
        .with_allowed("placed", ["paid"])
        .with_effect("paid", move |mut tx, change| {
            let (onceward, outbox) = (onceward.clone(), outbox.clone());
            Box::pin(async move {
                let Value::Text(order) = change.key else {
                    return Err(Error::new(ErrorKind::Invalid, "orders have texts as keys"));
                };
                onceward.enqueue_in(&mut InTransaction(&mut tx), &task(order)?).await?;
                let paid = Message::new("orders.paid", order.to_owned()).with_ordering_key(order);
                // The relays are woken after the commit, which is not here.
                let _ = outbox.add_all(&mut tx, [paid]).await?;
                Ok(())
            })
        })
        .build()
        .unwrap()
}

#[tokio::test]
async fn messages_and_tasks_of_a_change_commit_with_it_and_a_duplicate_adds_none() {
    let Some(database) = Database::fresh().await else { return };
    let store = PostgresStore::open(&database.url(), Options::default()).await.unwrap();
    let (onceward, outbox) = (Onceward::new(Arc::new(store)).unwrap(), Outbox::new());
    database.sql("CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL); INSERT INTO orders VALUES ('o-1', 'placed')");
    let (orders, mut client) = (orders(&onceward, &outbox), database.client().await);
    let (id, key) = (task("o-1").unwrap().id().clone(), Value::Text("o-1"));

    // What is rolled back has neither.
    let mut tx = client.transaction().await.unwrap();
    let undone = orders.change(&mut tx, key, "paid", Reason::default()).await.unwrap();
    assert_eq!(undone, Moved::Changed { from: "placed".into() });
    tx.rollback().await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM onceward_outbox"), "0");
    assert!(onceward.receipt(&id).await.unwrap().is_none());

    for expected in [Moved::Changed { from: "placed".into() }, Moved::AlreadyThere, Moved::AlreadyThere] {
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(orders.change(&mut tx, key, "paid", Reason::default()).await.unwrap(), expected);
        tx.commit().await.unwrap();
        outbox.wake_relays();
        onceward.wake_workers();
    }
    let messages = "SELECT count(*), min(topic), min(ordering_key) FROM onceward_outbox";
    assert_eq!(database.sql(messages), "1|orders.paid|o-1");
    let receipt = onceward.receipt(&id).await.unwrap().expect("the task exists");
    assert!(matches!(receipt.status, Status::Waiting(_)), "{receipt:?}");
}
