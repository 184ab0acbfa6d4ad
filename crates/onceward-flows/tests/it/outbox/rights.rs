//! A role that has what docs/messages.md asks for, and nothing else: services, relays and consumers work with it.

use onceward::Onceward;
use onceward_flows::{
    Consumer, ConsumerDatabase, DeadLetterFilter, Failure, FlowTables, MemoryPublisher, Message, Outbox,
    OutboxSource, Received,
};
use onceward_stores::sql::postgres::{PostgresStore, PostgresTransactions, PostgresTx};
use onceward_stores::sql::{Migrations, Options};
use tokio::sync::oneshot;

use crate::consumer::{Stock, locally, note, options};
use crate::engines::{Db, MariaDb};
use crate::relay::publishing::Running;
use crate::support::connect;

/// All tables of Onceward, and their sequences.
const GRANTS: &str = r"DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'onceward\_%' LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO ROLE_NAME', name);
    END LOOP;
    FOR name IN SELECT sequencename FROM pg_sequences WHERE sequencename LIKE 'onceward\_%' LOOP
        EXECUTE format('GRANT USAGE ON SEQUENCE %I TO ROLE_NAME', name);
    END LOOP;
    GRANT SELECT, INSERT ON effects TO ROLE_NAME;
    GRANT USAGE ON SEQUENCE effects_number_seq TO ROLE_NAME;
END $$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_in_postgres() {
    // It makes the tables, as the user that may do so.
    let Some(stock) = Stock::fresh().await else { return };
    let role = format!("app_{}", stock.database.name);
    stock.database.sql(&format!("CREATE ROLE {role} LOGIN"));
    stock.database.sql(&GRANTS.replace("ROLE_NAME", &role));
    let url = stock.database.url().replace("postgres@", &format!("{role}@"));
    let tables = FlowTables::open_with(&url, Migrations::Require).await.unwrap();

    // A service and its relay.
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let running = Running::start(&tables, &outbox, publisher.clone());
    let mut client = connect(&url).await;
    let mut add = async |payload: &'static str| {
        let mut tx = client.transaction().await.unwrap();
        let message = Message::new("orders.placed", payload).with_ordering_key("a");
        let wake = outbox.add_all(&mut tx, [message]).await.unwrap();
        tx.commit().await.unwrap();
        wake.fire();
    };
    add("0").await;
    running.relay.drained().await.unwrap();
    running.stop().await;

    // A consumer, with a dead letter that is tried again.
    let options_of_store = Options::default().with_migrations(Migrations::Require);
    let store = PostgresStore::open(&url, options_of_store).await.unwrap();
    let database = ConsumerDatabase::new(
        Onceward::new(std::sync::Arc::new(store)).unwrap(),
        PostgresTransactions::open(&url, 4).unwrap(),
        tables.clone(),
    );
    locally(async {
        let source = OutboxSource::new(tables, &outbox, 2);
        let consumer = Consumer::new("stock", source, database).with_options(options());
        let (stop, stopped) = oneshot::channel::<()>();
        let is_broken = std::rc::Rc::new(std::cell::Cell::new(true));
        let (working, of_handler) = (consumer.clone(), is_broken.clone());
        let task = tokio::task::spawn_local(async move {
            let handler = move |received: Received, tx: PostgresTx| {
                let is_broken = of_handler.get();
                async move {
                    note(&received, &tx).await?;
                    if is_broken { Err(Failure::permanent("no")) } else { Ok(()) }
                }
            };
            working.handle_until(async { drop(stopped.await) }, handler).await.unwrap();
        });
        add("1").await;
        add("2").await;
        stock.until("SELECT count(*) FROM onceward_dead_letters", "2").await;
        is_broken.set(false);
        assert_eq!(consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 1000).await.unwrap(), 1);
        stock.until_effects("a", "1 2").await;
        stock.until("SELECT count(*) FROM onceward_sequences", "0").await;
        stop.send(()).unwrap();
        task.await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_in_mariadb() {
    let Some(db) = Db::<MariaDb>::fresh().await else { return };
    let (address, name) = db.url.rsplit_once('/').unwrap();
    let role = format!("app_{name}");
    db.sql(&format!("CREATE USER {role}")).await;
    // What exists; a right for the whole database would be more than is asked for.
    let all =
        "SELECT GROUP_CONCAT(table_name) FROM information_schema.tables WHERE table_schema = DATABASE()";
    let all = db.sql(all).await;
    for table in all.split(',').filter(|table| table.starts_with("onceward_")) {
        db.sql(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}")).await;
    }
    let url = format!("{}/{name}", address.replace("root@", &format!("{role}@")));
    let tables = FlowTables::open_with(&url, Migrations::Require).await.unwrap();
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let running = Running::start(&tables, &outbox, publisher.clone());
    let pool = sqlx::MySqlPool::connect(&url).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let wake = outbox.add_all(&mut tx, [Message::new("t", "1").with_ordering_key("a")]).await.unwrap();
    tx.commit().await.unwrap();
    wake.fire();
    running.relay.drained().await.unwrap();
    assert_eq!(publisher.published().len(), 1);
    running.stop().await;
}
