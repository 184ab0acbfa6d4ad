//! The PostgreSQL store and transactions next to what one would write by hand, on one server with its
//! default durability, in one run.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy};
use onceward_stores::PostgresStore;
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use tokio_postgres::{Client, NoTls};

use crate::servers::Postgres;
use crate::table::{Table, median};

const ROUNDS: usize = 3;
const CALLERS: usize = 512;
const TRANSACTIONS: usize = 16;
const ROUND_S: u64 = 5;
const ANSWER: &str = "{\"id\":81,\"status\":\"charged\"}";

const TABLES: &str = "CREATE TABLE hand (key text PRIMARY KEY, state text NOT NULL, answer text);
    CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text, amount bigint)";
const CLAIM: &str = "INSERT INTO hand (key, state) VALUES ($1, 'held') ON CONFLICT (key) DO NOTHING";
const BUSINESS: &str = "INSERT INTO business (account, amount) VALUES ($1, 12)";
const COMPLETE: &str = "UPDATE hand SET state = 'done', answer = $2 WHERE key = $1";

/// A charge by hand as a script of `pgbench`: two statements, each its own commit.
const SCRIPT: &str = "\\set a random(1, 9223372036854775807)
INSERT INTO hand (key, state) VALUES ('order-' || :a, 'held') ON CONFLICT (key) DO NOTHING;
UPDATE hand SET state = 'done', answer = '{\"id\":81,\"status\":\"charged\"}' WHERE key = 'order-' || :a;
";

pub fn run() {
    let Some(server) = Postgres::start_with(&["max_connections=300"]) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let url = server.database("bench");
    server.sql("bench", TABLES);
    let table = Table::start("PostgreSQL, default durability");
    runtime.block_on(async {
        let store = PostgresStore::open(&url, Options::default()).await.unwrap();
        let onceward = Onceward::new(Arc::new(store)).unwrap();
        let transactions = PostgresTransactions::open(&url, TRANSACTIONS).unwrap();
        let mut clients = Vec::new();
        for _ in 0..TRANSACTIONS {
            clients.push(Arc::new(connect(&url).await));
        }

        let (mut engine, mut hand) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            engine.push(through_engine(&onceward, CALLERS).await);
            hand.push(pgbench(&server));
        }
        let (engine, hand) = (median(engine), median(hand));
        table.row("claim + complete, engine, 512 callers", &format!("{engine:.0}/s"), "", None);
        table.row("by hand, pgbench, 64 clients", &format!("{hand:.0}/s"), "", None);
        ratio(table, "engine / by hand", engine / hand, 5.0);

        let (mut keyed, mut bare, mut hand) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            keyed.push(transact(&onceward, &transactions).await);
            bare.push(with_clients(&clients, business).await);
            hand.push(with_clients(&clients, by_hand).await);
        }
        let (keyed, bare, hand) = (median(keyed), median(bare), median(hand));
        table.row("transact, 16 callers", &format!("{keyed:.0}/s"), "", None);
        table.row("the same without a key", &format!("{bare:.0}/s"), "", None);
        table.row("the same with a key by hand", &format!("{hand:.0}/s"), "", None);
        ratio(table, "transact / without a key", keyed / bare, 0.6);
        ratio(table, "transact / by hand", keyed / hand, 1.0);

        let (mut alone, mut hand) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            alone.push(through_engine(&onceward, 1).await);
            hand.push(with_clients(&clients[..1], two_commits).await);
        }
        let (alone, hand) = (median(alone), median(hand));
        table.row("one caller, engine", &format!("{alone:.0}/s"), "", None);
        table.row("one caller, by hand", &format!("{hand:.0}/s"), "", None);
        ratio(table, "engine / by hand, alone", alone / hand, 1.0);
    });
}

/// The engine at two sizes of the table, in thousand rows.
pub fn growth(small: usize, large: usize) {
    let Some(server) = Postgres::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let table = Table::start("PostgreSQL at two sizes");
    let url = server.database("bench");
    runtime.block_on(async {
        let store = PostgresStore::open(&url, Options::default()).await.unwrap();
        let onceward = Onceward::new(Arc::new(store)).unwrap();
        let mut rates = Vec::new();
        let mut filled = 0;
        for size in [small, large] {
            fill(&server, filled * 1000, size * 1000);
            filled = size;
            let mut rate = Vec::new();
            for _ in 0..ROUNDS {
                rate.push(through_engine(&onceward, CALLERS).await);
            }
            let rate = median(rate);
            table.row(&format!("claim + complete at {size} thousand"), &format!("{rate:.0}/s"), "", None);
            rates.push(rate);
        }
        let cost = rates[0] / rates[1];
        table.row("cost, large / small", &format!("{cost:.2}"), "<= 1.5", Some(cost <= 1.5));
    });
}

fn fill(server: &Postgres, from: usize, to: usize) {
    server.sql(
        "bench",
        &format!(
            "INSERT INTO onceward_receipts SELECT 'tenant', 'POST /charges', 'old-' || md5(n::text), 'done',
                1, clock_timestamp() + interval '1 day', clock_timestamp(), clock_timestamp(),
                decode(repeat('00', 120), 'hex') FROM generate_series({}, {to}) n",
            from + 1
        ),
    );
    server.sql("bench", "VACUUM ANALYZE onceward_receipts");
    server.sql("bench", "CHECKPOINT");
}

fn ratio(table: Table, name: &str, ratio: f64, least: f64) {
    table.row(name, &format!("{ratio:.2}"), &format!(">= {least}"), Some(ratio >= least));
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn key() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) as u64;
    // Spread over the index, as keys of clients are.
    format!("order-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn ask(policy: &Arc<Policy>) -> Ask {
    let id = Id::new("tenant", "POST /charges", &key()).unwrap();
    Ask::new(id, Fingerprint::new(1, [7; 32]), policy.clone())
}

/// Calls per second of so many callers.
async fn rate<W: Future<Output = ()> + Send + 'static>(
    callers: usize,
    call: impl Fn(usize) -> W + Send + Sync + 'static,
) -> f64 {
    let (call, count) = (Arc::new(call), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (call, count) = (call.clone(), count.clone());
            tokio::spawn(async move {
                while start.elapsed() < Duration::from_secs(ROUND_S) {
                    call(caller).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

async fn through_engine(onceward: &Onceward, callers: usize) -> f64 {
    let (onceward, policy) = (onceward.clone(), Arc::new(Policy::http()));
    let call = move |_| {
        let (onceward, ask) = (onceward.clone(), ask(&policy));
        async move {
            let work = async |_: Lease| Ok(Outcome::succeeded(ANSWER));
            assert!(!onceward.run(ask, work).await.unwrap().ran().unwrap().replayed);
        }
    };
    rate(callers, call).await
}

async fn transact(onceward: &Onceward, transactions: &PostgresTransactions) -> f64 {
    let (onceward, transactions, policy) = (onceward.clone(), transactions.clone(), Arc::new(Policy::http()));
    let call = move |_| {
        let (onceward, transactions, ask) = (onceward.clone(), transactions.clone(), ask(&policy));
        async move {
            let work = async |_: Lease, tx: PostgresTx| {
                let statement = tx.prepare_cached(BUSINESS).await?;
                tx.execute(&statement, &[&"a"]).await?;
                Ok(Outcome::succeeded(ANSWER))
            };
            assert!(!onceward.transact(&transactions, ask, work).await.unwrap().ran().unwrap().replayed);
        }
    };
    rate(TRANSACTIONS, call).await
}

/// The statements of the hand-written forms, prepared once for each connection.
#[derive(Clone)]
struct Hand {
    client: Arc<Client>,
    claim: tokio_postgres::Statement,
    business: tokio_postgres::Statement,
    complete: tokio_postgres::Statement,
}

async fn with_clients<W: Future<Output = ()> + Send + 'static>(
    clients: &[Arc<Client>],
    call: impl Fn(Hand) -> W + Send + Sync + 'static,
) -> f64 {
    let mut hands = Vec::new();
    for client in clients {
        hands.push(Hand {
            client: client.clone(),
            claim: client.prepare(CLAIM).await.unwrap(),
            business: client.prepare(BUSINESS).await.unwrap(),
            complete: client.prepare(COMPLETE).await.unwrap(),
        });
    }
    rate(hands.len(), move |caller| call(hands[caller].clone())).await
}

async fn business(hand: Hand) {
    hand.client.batch_execute("BEGIN").await.unwrap();
    hand.client.execute(&hand.business, &[&"a"]).await.unwrap();
    hand.client.batch_execute("COMMIT").await.unwrap();
}

async fn by_hand(hand: Hand) {
    let key = key();
    hand.client.batch_execute("BEGIN").await.unwrap();
    hand.client.execute(&hand.claim, &[&key]).await.unwrap();
    hand.client.execute(&hand.business, &[&"a"]).await.unwrap();
    hand.client.execute(&hand.complete, &[&key, &ANSWER]).await.unwrap();
    hand.client.batch_execute("COMMIT").await.unwrap();
}

async fn two_commits(hand: Hand) {
    let key = key();
    hand.client.execute(&hand.claim, &[&key]).await.unwrap();
    hand.client.execute(&hand.complete, &[&key, &ANSWER]).await.unwrap();
}

/// Scripts per second of `pgbench` with 64 clients and prepared statements.
fn pgbench(server: &Postgres) -> f64 {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    script.write_all(SCRIPT.as_bytes()).unwrap();
    let output = Command::new(server.programs().join("pgbench"))
        .args(["-n", "-M", "prepared", "-c", "64", "-j", "2", "-T", &ROUND_S.to_string(), "-f"])
        .arg(script.path())
        .args(["-h", "127.0.0.1", "-U", "postgres", "-p", &server.port().to_string(), "bench"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    tps.unwrap_or_else(|| panic!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
