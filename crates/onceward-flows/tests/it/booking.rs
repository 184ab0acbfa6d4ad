//! A booking saga of three services (seats, money, mail) whose workers are processes that are killed with SIGKILL at
//! random. Every booking must be completed, fully undone, or listed as needing a person; and only those whose outcome was
//! made unknown on purpose may be listed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward::{Backoff, Onceward};
use onceward_flows::{
    Direction, Saga, SagaFilter, SagaState, SagaView, Step, StepResult, StepStop, StoredSagas,
};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::PostgresStore;
use tokio_postgres::Client;

use crate::servers::Postgres;
use crate::support::{Random, connect};

const WORKERS: usize = 2;
const LEASE: Duration = Duration::from_millis(500);
const STUCK_AFTER: Duration = Duration::from_secs(120);
const DATABASE: &str = "ONCEWARD_BOOKING";

/// What the services do with a booking, by its number.
fn is_declined(booking: u64) -> bool {
    booking % 4 == 1
}

/// The mail is refused, when seat and money are taken.
fn is_refused(booking: u64) -> bool {
    booking % 8 == 3
}

/// The mail is sent, and ends with a failure that ends the tries.
fn is_failed(booking: u64) -> bool {
    booking % 8 == 7
}

fn is_lost(booking: u64) -> bool {
    booking % 16 == 6
}

fn booking_of(step: &Step) -> u64 {
    step.saga().key().parse().unwrap()
}

/// A call to one of the services: an effect under a key, in a database of its own. It honours the key.
async fn effect(client: &Client, step: &Step, service: &str) -> StepResult<()> {
    let (key, saga) = (step.key()?.to_string(), step.saga().key().to_owned());
    let what = format!("{service} {}", step.direction());
    let insert = "INSERT INTO effects (key, saga, what) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING";
    client.execute(insert, &[&key, &saga, &what]).await?;
    // The answer takes its time, so that kills come between an effect and its answer.
    tokio::time::sleep(Duration::from_millis(booking_of(step) % 7)).await;
    Ok(())
}

fn saga(client: &Arc<Client>) -> Saga {
    let call = |service: &'static str| {
        let client = client.clone();
        move |step: Step| {
            let client = client.clone();
            async move {
                let (booking, is_action) = (booking_of(&step), step.direction() == Direction::Action);
                match service {
                    "money" if is_action && is_declined(booking) => Err(StepStop::refused("card declined")),
                    "mail" if is_action && is_refused(booking) => Err(StepStop::refused("no such address")),
                    "mail" if is_action && is_failed(booking) => {
                        effect(&client, &step, service).await?;
                        Err(StepStop::failed("perhaps sent"))
                    }
                    "money" if is_lost(booking) => {
                        effect(&client, &step, service).await?;
                        Err(StepStop::unknown("the answer was lost"))
                    }
                    _ => effect(&client, &step, service).await,
                }
            }
        }
    };
    // More tries than any step can lose to kills.
    let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(5));
    Saga::builder("booking")
        .step("seat", call("seats"))
        .undo(call("seats"))
        .with_retry_unknown()
        .with_tries(40, backoff)
        .step("money", call("money"))
        .undo(call("money"))
        .with_retry_unknown()
        .with_tries(40, backoff)
        .step("mail", call("mail"))
        .undo(call("mail"))
        .with_retry_unknown()
        .with_tries(40, backoff)
        .with_lease(LEASE)
        .build()
        .unwrap()
}

async fn engine(url: &str) -> Onceward {
    let store = PostgresStore::open(url, Options::default()).await.unwrap();
    Onceward::new(Arc::new(store)).unwrap()
}

/// A worker; it ends with this process.
struct Process(Child);

impl Process {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "booking::process_of_the_bookings", "--nocapture"]).env(DATABASE, url);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// SIGKILL.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The workers below are this test, in another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_of_the_bookings() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    // When the test is gone, so is its input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let (onceward, client) = (engine(&url).await, Arc::new(connect(&url).await));
    saga(&client).worker(&onceward).unwrap().run_until(std::future::pending()).await;
}

async fn all_bookings(onceward: &Onceward) -> Vec<SagaView> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = StoredSagas::new(onceward).list(&SagaFilter::default(), after.take(), 200).await.unwrap();
        all.extend(page.sagas);
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

fn is_settled(view: &SagaView) -> bool {
    matches!(view.state, SagaState::Completed | SagaState::Undone | SagaState::NeedsPerson(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_booking_is_whole_or_undone_whatever_is_killed() {
    let kills = if std::env::var_os("ONCEWARD_LONG").is_some() { 200 } else { 10 };
    let Some(server) = Postgres::start() else { return };
    let url = server.database("booking");
    server.sql(
        "booking",
        "CREATE TABLE effects (number bigserial, key text PRIMARY KEY, saga text, what text)",
    );
    let onceward = engine(&url).await;
    let client = Arc::new(connect(&url).await);
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let starting = {
        let (onceward, saga, stop, started) =
            (onceward.clone(), saga(&client), stop.clone(), started.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let key = started.load(Ordering::SeqCst).to_string();
                saga.start(&onceward, &key, "").await.unwrap();
                started.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    };
    let mut processes: Vec<Process> = (0..WORKERS).map(|_| Process::start(&url)).collect();
    let mut random = Random(std::env::var("ONCEWARD_SEED").map_or(7, |seed| seed.parse().unwrap()));
    let effects = || server.sql("booking", "SELECT count(*) FROM effects").parse::<u64>().unwrap();
    for kill in 1..=kills {
        // Between two kills something must have been done: a kill of what does nothing proves nothing.
        let (before, waiting) = (effects(), Instant::now());
        while effects() < before + 10 {
            assert!(waiting.elapsed() < STUCK_AFTER, "stuck before kill {kill}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(100))).await;
        let at = usize::try_from(random.below(WORKERS as u64)).unwrap();
        processes[at] = Process::start(&url);
    }
    stop.store(true, Ordering::SeqCst);
    starting.await.unwrap();
    let waiting = Instant::now();
    let bookings = loop {
        let bookings = all_bookings(&onceward).await;
        if bookings.iter().all(is_settled) {
            break bookings;
        }
        let open = bookings.iter().filter(|view| !is_settled(view)).count();
        let example = bookings.iter().find(|view| !is_settled(view));
        assert!(waiting.elapsed() < STUCK_AFTER, "{open} bookings do not end: {example:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    drop(processes);
    let started = started.load(Ordering::SeqCst);
    assert_eq!(bookings.len() as u64, started, "every booking is listed");
    println!("{kills} kills: {}", balance(&server, &bookings));
}

/// Compares what became of each booking with its effects, and then the sums of the effects. Says how many ended how.
fn balance(server: &Postgres, bookings: &[SagaView]) -> String {
    let (mut completed, mut declined, mut refused, mut failed, mut listed) = (0, 0, 0, 0, 0);
    for booking in bookings {
        let key = booking.id.key();
        let number: u64 = key.parse().unwrap();
        let done = server.sql(
            "booking",
            &format!("SELECT string_agg(what, ',' ORDER BY number) FROM effects WHERE saga = '{key}'"),
        );
        let expected = match &booking.state {
            SagaState::Completed => {
                completed += 1;
                let must_not =
                    is_declined(number) || is_refused(number) || is_failed(number) || is_lost(number);
                assert!(!must_not, "{booking:#?}");
                "seats action,money action,mail action"
            }
            SagaState::Undone if is_declined(number) => {
                declined += 1;
                "seats action,seats undo"
            }
            SagaState::Undone if is_refused(number) => {
                refused += 1;
                "seats action,money action,money undo,seats undo"
            }
            SagaState::Undone => {
                failed += 1;
                assert!(is_failed(number), "{booking:#?}");
                "seats action,money action,mail action,mail undo,money undo,seats undo"
            }
            SagaState::NeedsPerson(needs) => {
                listed += 1;
                assert!(is_lost(number), "{booking:#?}");
                assert_eq!(needs.step.as_deref(), Some("money"));
                "seats action,money action"
            }
            state => panic!("{state:?}"),
        };
        assert_eq!(done, expected, "{booking:#?}");
    }
    // The same as sums: seats, money and mail without what was undone.
    let sum = |service: &str| {
        let of = |what: &str| {
            let count = format!("SELECT count(*) FROM effects WHERE what = '{service} {what}'");
            server.sql("booking", &count).parse::<u64>().unwrap()
        };
        of("action") - of("undo")
    };
    let kept = [sum("seats"), sum("money"), sum("mail")];
    assert_eq!(kept, [completed + listed, completed + listed, completed]);
    let endings = format!(
        "{completed} completed, {declined} declined, {refused} refused and {failed} failed at the end and undone, \
         {listed} listed for a person"
    );
    assert!([completed, declined, refused, failed, listed].iter().all(|&count| count > 0), "{endings}");
    endings
}
