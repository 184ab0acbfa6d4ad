//! The whole chain: orders service → outbox → relay → broker → consumer of the stock service, each a process of its own,
//! killed with SIGKILL at random and started again, or stopped for longer than its lease. Every committed order must have
//! one effect, in the order of its key; the dead letters are what was made to fail, and what waits behind it.

mod processes;
mod servers;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use onceward::Onceward;
use onceward_flows::{DeadLetterFilter, DeadLetterState, DeadLetters, RabbitMqPublisher, RabbitMqStreams};

use self::processes::{Addresses, CONSUMER_LEASE, Process, RELAY_LEASE};
use self::servers::{Broker, ChainEngine, Databases};
use crate::engines::{Db, Engine, MariaDb, Postgres, Sqlite};
use crate::servers::{Nats, RabbitMq, Redis};
use crate::support::Random;

const STREAM: &str = "chain";
const PARTITIONS: u32 = 8;
const KEYS: u64 = 12;
/// The first keys have messages that are made to fail.
const BAD_KEYS: u64 = 2;
/// The name of orders whose messages have no ordering key. They all are made to fail.
const ALONE: &str = "alone";
/// Nothing in the chain goes on for longer than this.
const STUCK_AFTER: Duration = Duration::from_secs(90);
/// `batches` is a stock service that handles several messages at a time.
const ROLES: [&str; 5] = ["orders", "relay", "relay", "stock", "batches"];
const INVERSIONS: &str =
    "SELECT count(*) FROM (SELECT n, coalesce(lag(n) OVER (PARTITION BY name ORDER BY number), 0)
    AS previous FROM effects WHERE name <> 'alone') AS of_keys WHERE n <> previous + 1";

fn is_made_to_fail(name: &str, n: i64) -> bool {
    name == ALONE || (n % 10 == FIRST_BAD && (0..BAD_KEYS).any(|key| name == format!("k{key}")))
}

const FIRST_BAD: i64 = 5;

/// What is done to the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    KillBroker,
    KillDatabase,
    KillProcess,
    /// One of its relays is stopped for longer than its lease, and wakes up.
    PauseRelay,
    PauseConsumer,
    /// All dead letters are tried again, and fail again.
    Redrive,
}
use Action::{KillBroker, KillDatabase, KillProcess, PauseConsumer, PauseRelay, Redrive};

/// 200 kills, 20 of them of the database.
fn long(has_server: bool, random: &mut Random) -> Vec<Action> {
    let of_database = if has_server { 20 } else { 0 };
    let counts = [
        (KillBroker, 25),
        (KillDatabase, of_database),
        (KillProcess, 175 - of_database),
        (PauseRelay, 8),
        (PauseConsumer, 8),
        (Redrive, 8),
    ];
    let mut actions: Vec<Action> =
        counts.into_iter().flat_map(|(action, count)| std::iter::repeat_n(action, count)).collect();
    for last in (1..actions.len()).rev() {
        let other = random.below(last as u64 + 1);
        actions.swap(last, usize::try_from(other).unwrap());
    }
    actions
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_order_has_one_effect_in_order_whatever_is_killed() {
    let mut actions = vec![KillBroker, PauseRelay, KillDatabase, Redrive, PauseConsumer];
    actions.extend([KillProcess; 8]);
    over_nats::<Postgres>(&actions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_over_redis() {
    let Some(redis) = Redis::start() else { return };
    run_chain::<Postgres>(Broker::Redis(redis), &[KillBroker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_over_rabbitmq() {
    let Some(rabbitmq) = RabbitMq::start() else { return };
    let streams = RabbitMqStreams::new(&rabbitmq.url(), STREAM, PARTITIONS).unwrap();
    RabbitMqPublisher::open(&streams).await.unwrap();
    rabbitmq.until_streams_are_saved();
    run_chain::<Postgres>(Broker::RabbitMq(rabbitmq), &[KillBroker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_on_mariadb() {
    over_nats::<MariaDb>(&[KillDatabase]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_on_sqlite() {
    over_nats::<Sqlite>(&[KillProcess]).await;
}

async fn over_nats<E: ChainEngine>(short: &[Action]) {
    let Some(nats) = Nats::start() else { return };
    crate::nats::stream(&nats.url(), STREAM).await;
    run_chain::<E>(Broker::Nats(nats), short).await;
}

/// The chain at work.
struct Chain<E: ChainEngine> {
    databases: E::Databases,
    broker: Broker,
    orders: Db<E>,
    stock: Db<E>,
    dead_letters: DeadLetters,
    addresses: Addresses,
    processes: Vec<Process>,
    /// Pauses in which another process took over.
    takeovers: usize,
}

async fn run_chain<E: ChainEngine>(broker: Broker, short: &[Action]) {
    let mut random = Random(std::env::var("ONCEWARD_SEED").map_or(7, |seed| seed.parse().unwrap()));
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let actions = if is_long { long(E::Databases::HAS_SERVER, &mut random) } else { short.to_vec() };
    let Some(mut chain) = Chain::<E>::start(broker).await else { return };
    for (at, action) in actions.iter().enumerate() {
        // Between two of them something must have been done: a kill of what does nothing proves nothing.
        let before = chain.effects().await;
        let mut watch = Watch::default();
        while chain.effects().await < before + 20 {
            watch.check(before, || format!("stuck before action {at}, {action:?}"), &mut chain).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
        chain.act(*action, &mut random).await;
    }
    let committed = chain.end_orders().await;
    let expected = chain.expected_dead_letters().await;
    chain.until_settled(committed, expected.len() as u64).await;
    assert_eq!(chain.found_dead_letters().await, expected, "the dead letters are what was made to fail");
    // The code is fixed, and all of them are tried again.
    chain.fix().await;
    chain.until_settled(committed, 0).await;
    drop(std::mem::take(&mut chain.processes));
    for role in ["stock", "batches"] {
        let log = std::fs::read_to_string(chain.addresses.log_file(role)).unwrap_or_default();
        let lost = log.lines().find(|line| line.contains("the order was lost"));
        assert_eq!(lost, None, "copies are no loss of order");
    }
    for role in ROLES {
        let _ = std::fs::remove_file(chain.addresses.log_file(role));
    }
    let summary = chain.stock.sql("SELECT count(*), count(DISTINCT message) FROM effects").await;
    assert_eq!(summary, format!("{committed}|{committed}"), "effects, and messages");
    assert_eq!(chain.stock.sql(INVERSIONS).await, "0", "effects out of order, or missing ones");
    assert_eq!(chain.stock.sql("SELECT count(*) FROM onceward_sequences").await, "0");
    let count = |of: &[Action]| actions.iter().filter(|action| of.contains(action)).count();
    let kills = count(&[KillBroker, KillDatabase, KillProcess]);
    let pauses = count(&[PauseRelay, PauseConsumer]);
    assert!(!is_long || (kills == 200 && chain.takeovers >= pauses / 2), "{} takeovers", chain.takeovers);
    println!(
        "{kills} kills ({} of the database), {pauses} pauses with {} takeovers, {committed} orders, one effect each, \
         {} dead letters tried again in order",
        count(&[KillDatabase]),
        chain.takeovers,
        expected.len(),
    );
}

/// A dead letter: its key, its number, and whether it waits behind another one.
type Letter = (String, i64, bool);

impl<E: ChainEngine> Chain<E> {
    async fn start(broker: Broker) -> Option<Self> {
        let databases = E::Databases::start()?;
        let addresses = Addresses {
            orders: databases.database("orders"),
            stock: databases.database("stock"),
            broker: broker.url(),
        };
        let (orders, stock) = (Db::<E>::open(&addresses.orders).await, Db::<E>::open(&addresses.stock).await);
        orders.sql("CREATE TABLE counters (name varchar(20) PRIMARY KEY, n bigint NOT NULL)").await;
        orders
            .sql("CREATE TABLE orders (name varchar(20), n bigint, message varchar(40), PRIMARY KEY (name, n))")
            .await;
        for name in (0..KEYS).map(|key| format!("k{key}")).chain([ALONE.to_owned()]) {
            orders.sql(&format!("INSERT INTO counters VALUES ('{name}', 0)")).await;
        }
        let (number, columns) = (E::COUNTED, "name varchar(20), n bigint, message varchar(40)");
        stock.sql(&format!("CREATE TABLE effects (number {number}, {columns})")).await;
        let onceward = Onceward::new(onceward_stores::open(&addresses.stock).await.unwrap()).unwrap();
        let dead_letters = DeadLetters::new(stock.tables.clone(), onceward, STREAM, "stock");
        let processes = ROLES.map(|role| Process::start(role, &addresses, false)).into_iter().collect();
        Some(Self { databases, broker, orders, stock, dead_letters, addresses, processes, takeovers: 0 })
    }

    async fn act(&mut self, action: Action, random: &mut Random) {
        match action {
            KillBroker => self.broker.kill_and_restart().await,
            KillDatabase => self.databases.kill_and_restart(),
            KillProcess => {
                let at = usize::try_from(random.below(ROLES.len() as u64)).unwrap();
                let role = self.processes[at].role;
                drop(self.processes.remove(at));
                self.processes.insert(at, Process::start(role, &self.addresses, false));
            }
            PauseRelay => self.pause("relay").await,
            PauseConsumer => {
                let role = if random.below(2) == 0 { "stock" } else { "batches" };
                self.pause(role).await;
            }
            // A dead letter that is tried again meanwhile, or a database that has just been killed.
            Redrive => drop(self.dead_letters.retry_all(&DeadLetterFilter::default(), 100_000).await),
        }
    }

    /// For longer than the lease, and until another process has taken over what the process had, if it had anything.
    async fn pause(&mut self, role: &str) {
        let (database, lease) =
            if role == "relay" { (&self.orders, RELAY_LEASE) } else { (&self.stock, CONSUMER_LEASE) };
        let fences = "SELECT CAST(sum(fence) AS INTEGER) FROM onceward_parts";
        let process = self.processes.iter().find(|process| process.role == role).unwrap();
        let before = query(database, fences).await;
        process.pause();
        let start = Instant::now();
        let mut is_taken_over = false;
        while start.elapsed() < lease * 3 / 2 || (!is_taken_over && start.elapsed() < lease * 8) {
            is_taken_over = query(database, fences).await != before;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        process.wake();
        self.takeovers += usize::from(is_taken_over);
    }

    /// No more orders; returns how many are committed.
    async fn end_orders(&mut self) -> u64 {
        drop(self.processes.remove(0));
        // The server may still be committing for the process that is gone, which then has these rows locked.
        query(&self.orders, "UPDATE counters SET n = n").await;
        number(&self.orders, "SELECT count(*) FROM orders").await
    }

    /// Until everything that was committed has its effect or is a dead letter, and nothing is on its way.
    async fn until_settled(&mut self, committed: u64, dead: u64) {
        let pending = "SELECT (SELECT count(*) FROM onceward_dead_letters WHERE state = 'retry')
            + (SELECT count(*) FROM onceward_sequences WHERE state = 'draining')";
        let mut watch = Watch::default();
        loop {
            let effects = self.effects().await;
            let letters = number(&self.stock, "SELECT count(*) FROM onceward_dead_letters").await;
            let outbox = number(&self.orders, "SELECT count(*) FROM onceward_outbox").await;
            let is_pending = number(&self.stock, pending).await > 0;
            if effects == committed - dead && letters == dead && outbox == 0 && !is_pending {
                return;
            }
            let what = || {
                format!(
                    "{committed} orders, {effects} effects, {letters} dead letters of {dead}, outbox {outbox}"
                )
            };
            watch.check(effects + letters, what, self).await;
        }
    }

    /// What was made to fail, and what waits behind the first one of its key.
    async fn expected_dead_letters(&self) -> Vec<Letter> {
        let mut letters = Vec::new();
        for key in 0..BAD_KEYS {
            let name = format!("k{key}");
            let last = self.orders.sql(&format!("SELECT n FROM counters WHERE name = '{name}'")).await;
            letters.extend((FIRST_BAD..=last.parse().unwrap()).map(|n| (name.clone(), n, n != FIRST_BAD)));
        }
        let last = self.orders.sql(&format!("SELECT n FROM counters WHERE name = '{ALONE}'")).await;
        letters.extend((1..=last.parse().unwrap()).map(|n| (ALONE.to_owned(), n, false)));
        letters
    }

    /// Those of a key in the order of their numbers in the table.
    async fn found_dead_letters(&self) -> Vec<Letter> {
        let (mut letters, mut alone, mut after) = (Vec::new(), Vec::new(), 0);
        loop {
            let page = self.dead_letters.list(&DeadLetterFilter::default(), after, 1000).await.unwrap();
            let Some(last) = page.last() else { break };
            after = last.number;
            for letter in &page {
                let n = std::str::from_utf8(letter.message.payload()).unwrap().parse().unwrap();
                let is_behind = letter.state == DeadLetterState::Behind;
                match letter.message.ordering_key() {
                    Some(key) => letters.push((key.to_owned(), n, is_behind)),
                    None => alone.push((ALONE.to_owned(), n, is_behind)),
                }
            }
        }
        // Stable: the order within a key stays. Messages without one have no order.
        letters.sort_by(|a: &Letter, b| a.0.cmp(&b.0));
        alone.sort();
        letters.extend(alone);
        letters
    }

    async fn fix(&mut self) {
        self.processes.retain(|process| !["stock", "batches"].contains(&process.role));
        let start = |role| Process::start(role, &self.addresses, true);
        self.processes.extend(["stock", "batches"].map(start));
        self.dead_letters.retry_all(&DeadLetterFilter::default(), 100_000).await.unwrap();
    }

    async fn effects(&self) -> u64 {
        number(&self.stock, "SELECT count(*) FROM effects").await
    }

    /// Everything that helps to find out why nothing goes on.
    async fn state(&mut self) -> String {
        let mut state = String::new();
        for process in &mut self.processes {
            let _ = writeln!(state, "{} has ended: {:?}", process.role, process.child.try_wait());
        }
        for (name, database) in [("orders", &self.orders), ("stock", &self.stock)] {
            let parts = "SELECT count(*), count(owner), count(DISTINCT owner), CAST(sum(fence) AS INTEGER) FROM onceward_parts";
            let _ = writeln!(state, "parts of {name}: {:?}", database.try_sql(parts).await);
        }
        let _ =
            writeln!(state, "tries: {:?}", self.stock.try_sql("SELECT count(*) FROM onceward_tries").await);
        for role in ["orders", "relay", "stock", "batches"] {
            let log = std::fs::read_to_string(self.addresses.log_file(role)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let _ = writeln!(state, "{role}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
        state
    }
}

/// Notices that nothing goes on.
struct Watch {
    count: u64,
    since: Instant,
}

impl Default for Watch {
    fn default() -> Self {
        Self { count: 0, since: Instant::now() }
    }
}

impl Watch {
    /// Fails if the count is the same for too long; otherwise it waits for a moment.
    async fn check<E: ChainEngine>(&mut self, count: u64, what: impl Fn() -> String, chain: &mut Chain<E>) {
        if count != self.count {
            (self.count, self.since) = (count, Instant::now());
        }
        assert!(self.since.elapsed() < STUCK_AFTER, "{}\n{}", what(), chain.state().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a statement whose repetition does no harm: the server may have been killed a moment ago.
async fn query<E: Engine>(database: &Db<E>, statement: &str) -> String {
    let start = Instant::now();
    loop {
        match database.try_sql(statement).await {
            Ok(found) => return found,
            Err(error) => assert!(start.elapsed() < STUCK_AFTER, "{statement}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn number<E: Engine>(database: &Db<E>, statement: &str) -> u64 {
    query(database, statement).await.parse().unwrap()
}

/// The check above sees what it is for: a second effect, a missing one, and two in the wrong order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_of_the_order_sees_inversions() {
    check_inversions::<Postgres>().await;
    check_inversions::<MariaDb>().await;
    check_inversions::<Sqlite>().await;
}

async fn check_inversions<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    db.sql(&format!("CREATE TABLE effects (number {}, name varchar(20), n bigint)", E::COUNTED)).await;
    for (numbers, expected) in [(&[1, 2, 3][..], "0"), (&[1, 1, 2], "1"), (&[1, 3], "1"), (&[2, 1], "2")] {
        db.sql("DELETE FROM effects").await;
        for number in numbers {
            db.sql(&format!("INSERT INTO effects (name, n) VALUES ('k', {number})")).await;
        }
        assert_eq!(db.sql(INVERSIONS).await, expected, "{numbers:?}");
    }
}
