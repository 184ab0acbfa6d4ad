//! Bookings as sagas over three services (seats, money, mail), each a process behind a gateway of its own. Services,
//! gateways and saga workers are killed with SIGKILL at random. Every booking must be completed, fully undone, or listed
//! as needing a person; and only those whose outcome was made unknown on purpose may be listed.
//!
//! ```text
//! workers ──▶ gateway ──▶ seats      each service has a ledger, and one line in it for each key
//! (sagas in  ─▶ gateway ──▶ money    each gateway has an embedded store
//! PostgreSQL)  ─▶ gateway ──▶ mail
//! ```

mod ledger;
mod saga;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward::Onceward;
use onceward_flows::{SagaFilter, SagaState, SagaView, StoredSagas};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::PostgresStore;

use super::stage::{Gateway, Home, rounds};
use crate::process::onceward;
use crate::servers::Postgres;
use ledger::Ledger;

/// What a process of this test is to be.
const ROLE: &str = "ONCEWARD_BOOKING_ROLE";
const SERVICES: [&str; 3] = ["seats", "money", "mail"];
const WORKERS: usize = 2;
const STUCK_AFTER: Duration = Duration::from_secs(120);
/// Bookings that may be open while more are started.
const OPEN_MAX: u64 = 60;

/// The card is declined: nothing is charged.
fn is_declined(booking: u64) -> bool {
    booking % 4 == 1
}

/// The mail is refused, when seat and money are taken.
fn is_refused(booking: u64) -> bool {
    booking % 8 == 3
}

/// The mail is sent, and answered with a failure that ends the tries.
fn is_failed(booking: u64) -> bool {
    booking % 8 == 7
}

/// The service takes the money and closes the connection without an answer, whenever it is asked.
fn is_lost(booking: u64) -> bool {
    booking % 16 == 6
}

fn routes_of(service: &str) -> &'static str {
    match service {
        "seats" => {
            "[[route]]\npath = \"/seats\"\non_unknown = \"retry\"\n\
             [[route]]\npath = \"/releases\"\non_unknown = \"retry\"\ncloses = [\"POST /seats\"]\n"
        }
        // What is lost is held: the default.
        "money" => {
            "[[route]]\npath = \"/charges\"\non_unknown = \"retry\"\n\
             [[route]]\npath = \"/refunds\"\non_unknown = \"retry\"\n\
             closes = [\"POST /charges\", \"POST /held-charges\"]\n"
        }
        _ => {
            "[[route]]\npath = \"/mails\"\non_unknown = \"retry\"\n\
             [[route]]\npath = \"/retractions\"\non_unknown = \"retry\"\ncloses = [\"POST /mails\"]\n"
        }
    }
}

/// This test in another process, as a service or a worker. Dropping it kills it with SIGKILL.
struct Process(Child);

impl Process {
    fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "gateway::bookings::process_of_the_bookings", "--nocapture"])
            .env(ROLE, role);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The services and the workers below are this test, in another process.
#[test]
fn process_of_the_bookings() {
    let Ok(role) = std::env::var(ROLE) else { return };
    // When the test is gone, so is its input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["service", address, ledger] => ledger::serve(address.parse().unwrap(), ledger.as_ref()),
        ["worker", database, seats, money, mail] => saga::work(database, [seats, money, mail]),
        _ => panic!("no such role: {role}"),
    }
}

/// A service and the gateway in front of it, each on an address that survives its process. No connection begins at such
/// an address, so the ports stay free while nobody listens.
struct Participant {
    home: Home,
    service_at: SocketAddr,
    gateway_at: SocketAddr,
    service: Process,
    gateway: Gateway,
}

impl Participant {
    fn start(name: &'static str, number: u8) -> Self {
        let home = Home::new();
        home.write_config(routes_of(name));
        let free =
            |last: u8| TcpListener::bind((Ipv4Addr::new(127, 0, 7, last), 0)).unwrap().local_addr().unwrap();
        let (service_at, gateway_at) = (free(2 * number + 1), free(2 * number + 2));
        let service = service(service_at, &ledger_in(&home));
        let gateway = gateway(&home, service_at, gateway_at);
        Self { home, service_at, gateway_at, service, gateway }
    }

    fn kill_service(&mut self) {
        let _ = self.service.0.kill();
        let _ = self.service.0.wait();
        self.service = service(self.service_at, &ledger_in(&self.home));
    }

    fn kill_gateway(&mut self) {
        self.gateway.child.kill().unwrap();
        self.gateway.child.wait().unwrap();
        self.gateway = gateway(&self.home, self.service_at, self.gateway_at);
    }

    fn ledger(&self) -> Ledger {
        Ledger::read(&ledger_in(&self.home))
    }
}

fn ledger_in(home: &Home) -> PathBuf {
    home.folder.path().join("ledger")
}

fn service(at: SocketAddr, ledger: &std::path::Path) -> Process {
    Process::start(&format!("service {at} {}", ledger.display()))
}

fn gateway(home: &Home, service: SocketAddr, at: SocketAddr) -> Gateway {
    let (upstream, listen) = (format!("http://{service}"), at.to_string());
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let mut command = onceward(&["proxy", "--upstream", &upstream, "--store", &store, "--listen", &listen]);
    command.args(["--admin", "127.0.0.1:0", "--log", "error", "--drain-delay", "0s", "--config"]);
    command.arg(home.config());
    Gateway::spawn(command)
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

async fn all_settled(onceward: &Onceward) -> Vec<SagaView> {
    let waiting = Instant::now();
    loop {
        let bookings = all_bookings(onceward).await;
        let open: Vec<_> = bookings.iter().filter(|view| !is_settled(view)).collect();
        if open.is_empty() {
            return bookings;
        }
        let (count, example) = (open.len(), open[0]);
        assert!(waiting.elapsed() < STUCK_AFTER, "{count} bookings do not end: {example:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Numbers for where and when the next kill hits.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_seats_and_mail_balance_whatever_is_killed() {
    let kills = rounds(10, 200);
    let Some(server) = Postgres::start() else { return };
    let database = server.database("bookings");
    let store = PostgresStore::open(&database, Options::default()).await.unwrap();
    let onceward = Onceward::new(Arc::new(store)).unwrap();
    let mut participants: Vec<Participant> =
        (0..).zip(SERVICES).map(|(number, name)| Participant::start(name, number)).collect();
    let addresses: Vec<String> = participants.iter().map(|each| each.gateway_at.to_string()).collect();
    let worker = format!("worker {database} {}", addresses.join(" "));
    let mut workers: Vec<Process> = (0..WORKERS).map(|_| Process::start(&worker)).collect();

    let requests = Arc::new(AtomicU64::new(0));
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let starting = {
        let (onceward, stop) = (onceward.clone(), stop.clone());
        let (started, requests) = (started.clone(), requests.clone());
        tokio::spawn(async move {
            let sagas = saga::sagas(["-"; 3]);
            while !stop.load(Ordering::SeqCst) {
                let booking = started.load(Ordering::SeqCst);
                // Each has two at least, apart from some that are lost.
                if booking < requests.load(Ordering::SeqCst) / 2 + OPEN_MAX {
                    let saga = &sagas[usize::from(is_lost(booking))];
                    saga.start(&onceward, &booking.to_string(), "").await.unwrap();
                    started.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
    };
    let mut random = Random(std::env::var("ONCEWARD_SEED").map_or(7, |seed| seed.parse().unwrap()));
    let mut killed = [0; 3];
    for kill in 1..=kills {
        // Between two kills something must have been done: a kill of what does nothing proves nothing.
        let (before, waiting) = (requests.load(Ordering::SeqCst), Instant::now());
        loop {
            let now = participants.iter().map(|each| Ledger::requests(&ledger_in(&each.home))).sum();
            requests.store(now, Ordering::SeqCst);
            if now >= before + 10 {
                break;
            }
            assert!(waiting.elapsed() < STUCK_AFTER, "stuck before kill {kill}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(100))).await;
        let at = usize::try_from(random.below(3)).unwrap();
        // Each kind once, and then any.
        let kind = if kill <= 3 { kill - 1 } else { usize::try_from(random.below(3)).unwrap() };
        killed[kind] += 1;
        match kind {
            0 => participants[at].kill_service(),
            1 => participants[at].kill_gateway(),
            _ => workers[at % WORKERS] = Process::start(&worker),
        }
    }
    stop.store(true, Ordering::SeqCst);
    starting.await.unwrap();
    let bookings = all_settled(&onceward).await;
    drop(workers);
    assert_eq!(bookings.len() as u64, started.load(Ordering::SeqCst), "every booking is listed");
    let ledgers: Vec<Ledger> = participants.iter().map(Participant::ledger).collect();
    let endings = balance(&bookings, &ledgers);
    let repeated: usize = ledgers.iter().map(Ledger::repeated).sum();
    println!(
        "{kills} kills ({} of services, {} of gateways, {} of workers): {endings:?}; {repeated} requests came to a \
         service a second time",
        killed[0], killed[1], killed[2]
    );
    assert!(killed.iter().all(|&count| count > 0), "{killed:?}");
    drop(participants);
}

/// How many bookings ended in which way.
#[derive(Debug, Default)]
struct Endings {
    completed: usize,
    /// Undone, because the card was declined.
    declined: usize,
    /// Undone, because the mail was refused.
    refused: usize,
    /// Undone, because the mail failed.
    failed: usize,
    /// Listed for a person.
    listed: usize,
    /// Those of them whose money was taken.
    listed_charged: usize,
}

/// Compares what became of each booking with the ledgers, and the sums of the ledgers with each other.
fn balance(bookings: &[SagaView], ledgers: &[Ledger]) -> Endings {
    let mut endings = Endings::default();
    let mut expected_lines = 0;
    for booking in bookings {
        let key = booking.id.key();
        let number: u64 = key.parse().unwrap();
        let done: Vec<String> = ledgers.iter().map(|ledger| ledger.of(key)).collect();
        let done: Vec<&str> = done.iter().map(String::as_str).collect();
        expected_lines +=
            done.iter().map(|lines| lines.split(' ').filter(|word| !word.is_empty()).count()).sum::<usize>();
        match &booking.state {
            SagaState::Completed => {
                endings.completed += 1;
                let must_not =
                    is_declined(number) || is_refused(number) || is_failed(number) || is_lost(number);
                assert!(!must_not, "{booking:#?}");
                assert_eq!(done, ["/seats", "/charges", "/mails"], "{booking:#?}");
            }
            SagaState::Undone if is_declined(number) => {
                endings.declined += 1;
                assert_eq!(done, ["/seats /releases", "", ""], "{booking:#?}");
            }
            SagaState::Undone if is_refused(number) => {
                endings.refused += 1;
                assert_eq!(done, ["/seats /releases", "/charges /refunds", ""], "{booking:#?}");
            }
            SagaState::Undone => {
                endings.failed += 1;
                assert!(is_failed(number), "{booking:#?}");
                let all = ["/seats /releases", "/charges /refunds", "/mails /retractions"];
                assert_eq!(done, all, "{booking:#?}");
            }
            SagaState::NeedsPerson(needs) => {
                endings.listed += 1;
                assert!(is_lost(number), "{booking:#?}");
                assert_eq!(needs.step.as_deref(), Some("money"));
                // Killed before the service had it, or after: that is what nobody can tell.
                assert!(matches!(done[..], ["/seats", "/held-charges" | "", ""]), "{done:?} {booking:#?}");
                endings.listed_charged += usize::from(!done[1].is_empty());
            }
            state => panic!("{state:?}"),
        }
    }
    let lines: usize = ledgers.iter().map(Ledger::effects).sum();
    assert_eq!(lines, expected_lines, "every effect belongs to a booking");
    // The same as sums, as the owners of the services would add them up.
    let [seats, money, mail] = ledgers else { panic!("there are three services") };
    let Endings { completed, declined, refused, failed, listed, listed_charged } = endings;
    assert_eq!(seats.count("/seats") - seats.count("/releases"), completed + listed, "{endings:?}");
    let charged = money.count("/charges") + money.count("/held-charges");
    assert_eq!(charged - money.count("/refunds"), completed + listed_charged, "{endings:?}");
    assert_eq!(mail.count("/mails") - mail.count("/retractions"), completed, "{endings:?}");
    assert_eq!(money.count("/refunds"), refused + failed, "{endings:?}");
    // Each kind of ending, or nothing was tested about it.
    for count in [completed, declined, refused, failed, listed] {
        assert!(count > 0, "{endings:?}");
    }
    endings
}
