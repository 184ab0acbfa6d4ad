//! What is written without this project: a relay on `FOR UPDATE SKIP LOCKED`, and business transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Runtime;
use onceward_flows::{Message, Outbox};
use onceward_stores::sql::postgres::StatementCache;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

use super::{KEYS, PAYLOAD, callers};
use crate::servers::Postgres;
use crate::turns::Turn;

pub(super) const TABLES: &str = "CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account text, amount bigint);
    CREATE TABLE hand_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message uuid NOT NULL,
        topic text NOT NULL, ordering_key text, headers text NOT NULL, payload bytea NOT NULL,
        created timestamptz NOT NULL DEFAULT clock_timestamp())";
const BATCH: i64 = 100;

pub(super) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(super) fn fill(server: &Postgres, count: usize) {
    let insert = format!(
        "INSERT INTO hand_outbox (message, topic, ordering_key, headers, payload)
         SELECT gen_random_uuid(), 'orders.placed', 'k' || n % {KEYS}, '{{}}', convert_to('{PAYLOAD}', 'UTF8')
         FROM generate_series(1, {count}) AS n"
    );
    server.sql("bench", &insert);
    server.sql("bench", "ANALYZE hand_outbox");
}

/// Messages per second until the table is empty: lock a batch, publish it, delete it, commit.
pub(super) async fn drain(url: &str, count: usize) -> f64 {
    let client = connect(url).await;
    let select = "SELECT id, message::text, topic, ordering_key, headers, payload FROM hand_outbox
        ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED";
    let select = client.prepare(select).await.unwrap();
    let delete = client.prepare("DELETE FROM hand_outbox WHERE id = ANY ($1)").await.unwrap();
    let start = Instant::now();
    loop {
        client.batch_execute("BEGIN").await.unwrap();
        let rows = client.query(&select, &[&BATCH]).await.unwrap();
        if rows.is_empty() {
            client.batch_execute("COMMIT").await.unwrap();
            return count as f64 / start.elapsed().as_secs_f64();
        }
        // Published: to nowhere, but everything is read.
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        for row in &rows {
            let read = (row.get::<_, &str>(1), row.get::<_, &str>(3), row.get::<_, &[u8]>(5).to_vec());
            std::hint::black_box(read);
        }
        client.execute(&delete, &[&ids]).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
}

/// How the service is connected to its database.
#[derive(Clone, Copy)]
pub(super) enum Connections {
    /// A pool, whose connections keep prepared statements: also those of the outbox.
    Pool,
    /// The bare driver. It prepares the service's own insert; the outbox cannot prepare anything there.
    Bare,
    /// The bare driver, with a cache of statements beside each connection.
    BareWithStatements,
}

/// Transactions per second of some inserts, with or without a message as the last statement.
pub(super) async fn business(
    url: &str,
    connections: Connections,
    count: usize,
    statements: usize,
    with_message: bool,
    length: Duration,
) -> Turn {
    let mut clients = Vec::new();
    for _ in 0..count {
        let pool = deadpool_postgres::Config { url: Some(url.to_owned()), ..Default::default() };
        let pool = pool.create_pool(Some(Runtime::Tokio1), NoTls).unwrap();
        let client = pool.get().await.unwrap();
        let insert = "INSERT INTO business (account, amount) VALUES ($1, 12)";
        let insert = client.prepare_cached(insert).await.unwrap();
        clients.push(Arc::new(Mutex::new((client, insert, StatementCache::new()))));
    }
    let outbox = Outbox::new();
    let call = move |caller: usize| {
        let (client, outbox) = (clients[caller].clone(), outbox.clone());
        async move {
            let mut locked = client.lock().await;
            let (client, insert, prepared) = &mut *locked;
            let mut tx = client.transaction().await.unwrap();
            for _ in 0..statements {
                tx.execute(&*insert, &[&"a"]).await.unwrap();
            }
            if with_message {
                let message =
                    Message::new("orders.placed", PAYLOAD).with_ordering_key(format!("k{}", rand_key()));
                let added = match connections {
                    Connections::Pool => outbox.add_all(&mut tx, [message]).await,
                    Connections::Bare => outbox.add_all(&mut *tx, [message]).await,
                    Connections::BareWithStatements => {
                        outbox.add_all(&mut prepared.within(&mut tx), [message]).await
                    }
                };
                added.unwrap().fire();
            }
            tx.commit().await.unwrap();
        }
    };
    callers(count, tokio::time::sleep(length), call).await
}

/// Spread over the keys.
fn rand_key() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(7, Ordering::Relaxed) % KEYS
}
