//! The whole chain: orders service → outbox → relay → NATS → consumer of the stock service, each a process of its own,
//! killed with SIGKILL at random and started again. Every committed order must have one effect, in the order of its key.

use std::fmt::Write as _;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onceward_flows::postgres::FlowTables;
use onceward_flows::{Consumer, Message, NatsPublisher, NatsSource, Outbox, Received, Relay};
use onceward_stores::sql::postgres::PostgresTx;

use crate::servers::{Nats, Postgres};
use crate::support::{Random, connect};

const STREAM: &str = "chain";
const PARTITIONS: u32 = 8;
const KEYS: u64 = 12;
/// Nothing in the chain waits for longer than this.
const STUCK_AFTER: Duration = Duration::from_secs(90);
const ROLES: [&str; 5] = ["orders", "relay", "relay", "stock", "stock"];
const ROLE: &str = "ONCEWARD_FLOWS_ROLE";

/// A process of the chain; it ends with this one.
struct Process {
    role: &'static str,
    child: Child,
}

impl Process {
    fn start(role: &'static str, orders: &str, stock: &str, nats: &str) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log_file(role)).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "chain::process_of_the_chain", "--nocapture"])
            .env(ROLE, role)
            .envs([("ONCEWARD_ORDERS", orders), ("ONCEWARD_STOCK", stock), ("ONCEWARD_NATS", nats)])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { role, child }
    }
}

/// What the processes of a role have to say: shown if the chain is stuck.
fn log_file(role: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("onceward-chain-{}-{role}.log", std::process::id()))
}

/// Everything that helps to find out why nothing goes on.
fn state(server: &Postgres, processes: &mut [Process]) -> String {
    let mut state = String::new();
    for process in processes {
        let _ = writeln!(state, "{} has ended: {:?}", process.role, process.child.try_wait());
    }
    let counts = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM onceward_outbox)";
    let _ = writeln!(state, "orders, outbox: {}", server.sql("orders", counts));
    for database in ["orders", "stock"] {
        let parts = "SELECT flow, part, owner, fence, until - clock_timestamp(), position FROM onceward_parts
            WHERE part < 8 ORDER BY flow, part";
        let _ = writeln!(state, "parts of {database}:\n{}", server.sql(database, parts));
    }
    let _ = writeln!(state, "tries: {}", server.sql("stock", "SELECT * FROM onceward_tries"));
    for role in ["orders", "relay", "stock"] {
        let log = std::fs::read_to_string(log_file(role)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let _ = writeln!(state, "{role}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
    }
    state
}

/// SIGKILL.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_order_has_one_effect_in_order_whatever_is_killed() {
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let kills = if is_long { 200 } else { 10 };
    let (Some(mut server), Some(mut nats)) = (Postgres::start(), Nats::start()) else { return };
    let (orders, stock) = (server.database("orders"), server.database("stock"));
    server.sql(
        "orders",
        "CREATE TABLE counters (key text PRIMARY KEY, n bigint NOT NULL);
         CREATE TABLE orders (key text, n bigint, message text, PRIMARY KEY (key, n))",
    );
    server.sql("orders", &format!("INSERT INTO counters SELECT 'k' || generate_series(0, {KEYS} - 1), 0"));
    server.sql(
        "stock",
        "CREATE TABLE effects (number bigserial PRIMARY KEY, key text, n bigint, message text)",
    );
    for url in [&orders, &stock] {
        FlowTables::open(url).await.unwrap();
    }
    crate::nats::stream(&nats.url(), STREAM).await;
    let start = |role| Process::start(role, &orders, &stock, &nats.url());
    let mut processes: Vec<Process> = ROLES.map(start).into_iter().collect();
    let mut random = Random(std::env::var("ONCEWARD_SEED").map_or(7, |seed| seed.parse().unwrap()));
    let count = |server: &Postgres, sql: &str, of: &str| server.sql(of, sql).parse::<u64>().unwrap();
    for kill in 1..=kills {
        // Between two kills something must have been done: a kill of what does nothing proves nothing.
        let before = count(&server, "SELECT count(*) FROM effects", "stock");
        let waiting = Instant::now();
        while count(&server, "SELECT count(*) FROM effects", "stock") < before + 20 {
            let is_stuck = waiting.elapsed() > STUCK_AFTER;
            assert!(!is_stuck, "stuck before kill {kill}\n{}", state(&server, &mut processes));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
        match random.below(8) {
            0 => crate::nats::kill_and_restart(&mut nats, STREAM).await,
            1 if is_long => {
                server.kill();
                server.up();
            }
            which => {
                let at = usize::try_from(which).unwrap() % processes.len();
                let role = processes[at].role;
                drop(processes.remove(at));
                processes.insert(at, Process::start(role, &orders, &stock, &nats.url()));
            }
        }
    }
    // No more orders; then everything must come through.
    drop(processes.remove(0));
    let committed = count(&server, "SELECT count(*) FROM orders", "orders");
    let waiting = Instant::now();
    while count(&server, "SELECT count(*) FROM effects", "stock") < committed {
        let is_stuck = waiting.elapsed() > STUCK_AFTER;
        assert!(
            !is_stuck,
            "{committed} orders, and not all have their effect\n{}",
            state(&server, &mut processes)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let waiting = Instant::now();
    while count(&server, "SELECT count(*) FROM onceward_outbox", "orders") > 0 {
        let is_stuck = waiting.elapsed() > STUCK_AFTER;
        assert!(!is_stuck, "the outbox does not become empty\n{}", state(&server, &mut processes));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(processes);
    for role in ROLES {
        let _ = std::fs::remove_file(log_file(role));
    }
    let summary = "SELECT count(*) || ' ' || count(DISTINCT message) FROM effects";
    assert_eq!(server.sql("stock", summary), format!("{committed} {committed}"), "effects, and messages");
    let inversions =
        "SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY number) AS before
        FROM effects) AS effects WHERE n <> before + 1";
    assert_eq!(server.sql("stock", inversions), "0", "effects out of order, or missing ones");
    assert_eq!(server.sql("stock", "SELECT count(*) FROM onceward_dead_letters"), "0");
    println!("{kills} kills, {committed} orders, one effect each");
}

/// The processes above are this test, in another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_of_the_chain() {
    let Ok(role) = std::env::var(ROLE) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    // When the test is gone, so is its input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let url = |name: &str| std::env::var(name).unwrap();
    loop {
        let ended = match role.as_str() {
            "orders" => take_orders(&url("ONCEWARD_ORDERS")).await,
            "relay" => relay(&url("ONCEWARD_ORDERS"), &url("ONCEWARD_NATS")).await,
            _ => {
                let (stock, nats) = (url("ONCEWARD_STOCK"), url("ONCEWARD_NATS"));
                tokio::task::LocalSet::new().run_until(consume(&stock, &nats)).await
            }
        };
        // A server was killed at a bad moment; a supervisor would start the process again.
        eprintln!("{role} ended: {ended:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

type Ended = Result<(), Box<dyn std::error::Error>>;

async fn take_orders(url: &str) -> Ended {
    let outbox = Outbox::new();
    let mut random = Random(u64::from(std::process::id()));
    let (mut client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    loop {
        let mut tx = client.transaction().await?;
        let mut messages = Vec::new();
        let mut keys = [random.below(KEYS), random.below(KEYS)];
        keys.sort_unstable();
        for key in keys {
            let key = format!("k{key}");
            let count = "UPDATE counters SET n = n + 1 WHERE key = $1 RETURNING n";
            let n: i64 = tx.query_one(count, &[&key]).await?.get(0);
            let message = Message::new("orders.placed", n.to_string()).with_ordering_key(key.clone());
            tx.execute("INSERT INTO orders VALUES ($1, $2, $3)", &[&key, &n, &message.id()]).await?;
            messages.push(message);
        }
        let wake = outbox.add_all(&mut tx, messages).await?;
        if random.below(10) == 0 {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        wake.fire();
    }
}

async fn relay(url: &str, nats: &str) -> Ended {
    let context = async_nats::jetstream::new(async_nats::connect(nats).await?);
    let publisher = NatsPublisher::new(context, STREAM, PARTITIONS)?;
    let mut options = onceward_flows::RelayOptions::default();
    options.lease = Duration::from_millis(500);
    let relay = Relay::new(FlowTables::open(url).await?, &Outbox::new(), publisher).with_options(options);
    Ok(relay.run_until(std::future::pending()).await?)
}

async fn consume(url: &str, nats: &str) -> Ended {
    let context = async_nats::jetstream::new(async_nats::connect(nats).await?);
    let source = NatsSource::new(context, STREAM, STREAM, PARTITIONS)?;
    let tables = FlowTables::open(url).await?;
    let database = crate::consumer::consumer_database(url, &tables).await?;
    let consumer = Consumer::new("stock", source, database).with_options(crate::consumer::short_lease());
    let effect = async |received: Received, tx: PostgresTx| {
        let message = &received.message;
        let n: i64 = std::str::from_utf8(message.payload())?.parse()?;
        let insert = "INSERT INTO effects (key, n, message) VALUES ($1, $2, $3)";
        tx.execute(insert, &[&message.ordering_key().unwrap_or_default(), &n, &message.id()]).await?;
        Ok(())
    };
    Ok(consumer.handle_until(std::future::pending(), effect).await?)
}

/// The check above sees what it is for: a second effect, a missing one, and two in the wrong order.
#[tokio::test]
async fn the_check_of_the_order_sees_inversions() {
    let Some(server) = Postgres::shared() else { return };
    let client = connect(&server.url(&server.fresh())).await;
    client.batch_execute("CREATE TABLE effects (number bigserial, key text, n bigint)").await.unwrap();
    for (numbers, expected) in [("1, 2, 3", 0_i64), ("1, 1, 2", 1), ("1, 3", 1), ("2, 1", 2)] {
        let insert =
            format!("TRUNCATE effects; INSERT INTO effects (key, n) SELECT 'k', unnest(ARRAY[{numbers}])");
        client.batch_execute(&insert).await.unwrap();
        let inversions =
            "SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY number) AS before
            FROM effects) AS effects WHERE n <> before + 1";
        let seen: i64 = client.query_one(inversions, &[]).await.unwrap().get(0);
        assert_eq!(seen, expected, "{numbers}");
    }
}
