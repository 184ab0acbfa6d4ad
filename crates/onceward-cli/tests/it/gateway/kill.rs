//! Kills the gateway repeatedly under load. No acknowledged answer is lost, nothing runs twice that must not, and no key
//! stays blocked.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Reply, Service, rounds};
use crate::process::{eventually, onceward};

const CLIENTS: usize = 9;

/// A third of the clients each: a route that holds an unknown outcome, one that may be taken over, one that asks the service.
const PATHS: [&str; 3] = ["/charges", "/again", "/asked"];

/// How long a request that was sent may still take effect (`answer_timeout`). Until then the service is not believed that
/// nothing happened.
const LATE_EFFECT_MAX: Duration = Duration::from_secs(2);

/// `ONCEWARD_KILLS` is for another number than the usual ones.
fn kills() -> usize {
    let given = std::env::var("ONCEWARD_KILLS").ok();
    given.map_or_else(|| rounds(10, 1000), |kills| kills.parse().expect("a number of kills"))
}

/// Every key has its final answer this soon after the start of the next process. The start, which reads the journal of the
/// store, counts with its processor time: on a busy machine it takes several times as long, because others have the
/// processors.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// And this soon by the clock, whatever else the machine does: less than the lease of 30 seconds, which a key would wait for
/// if the start had not ended it.
const ANSWERED_AT_LAST: Duration = Duration::from_secs(20);

/// The paths and the keys that were sent since the last restart, by the number of the client. The last of each may be in
/// flight.
type SentKeys = BTreeMap<usize, Vec<(String, String)>>;

/// The final answer that a client got for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FinalAnswer {
    Done(String),
    Unknown,
    /// The test was over before it got one.
    Nothing,
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_held_runs_twice() {
    let service = slow_service();
    let home = Home::new();
    // The default lease, far longer than a key may go without an answer: only that the next process ends the leases of the
    // killed one can make it in time.
    home.write_config(
        "[defaults]\nlease = \"30s\"\nwait_at_most = \"5s\"\n\
         [[route]]\npath = \"/again\"\non_unknown = \"retry\"\n\
         [[route]]\npath = \"/asked\"\non_unknown = \"reconcile\"\nreconcile_url = \"/about/{key}\"\n\
         answer_timeout = \"2s\"\n",
    );
    let gateway = home.start(&service.url());
    let here = Arc::new(Mutex::new(gateway.address));
    let sent = Arc::new(Mutex::new(SentKeys::new()));
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (here, over, sent) = (here.clone(), over.clone(), sent.clone());
            let path = PATHS[number % PATHS.len()];
            thread::spawn(move || client(number, path, &here, &over, &sent))
        })
        .collect();
    let gateway = kill_and_restart(gateway, &home, &service, &here, &sent);
    over.store(true, Ordering::SeqCst);
    let told: BTreeMap<(String, String), FinalAnswer> =
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    check(&told, &service, &gateway);
}

/// A gateway that opens its folder knows that the previous process is dead, so it does not wait for its leases: a request
/// that may have been sent is unknown at once, or sent again where the route allows it.
#[test]
fn after_a_crash_leases_of_the_killed_process_end_at_once() {
    let service = Service::start(|_| Reply::Stall(Vec::new()));
    let home = Home::new();
    // The default lease and wait; a request may take effect for ten minutes after it was sent.
    home.write_config(
        "[defaults]\nlease = \"30s\"\nwait_at_most = \"30s\"\nanswer_timeout = \"600s\"\n\
         [[route]]\npath = \"/again\"\non_unknown = \"retry\"\nanswer_timeout = \"1s\"\n",
    );
    let gateway = home.start(&service.url());
    let address = gateway.address;
    let sent: Vec<_> =
        ["/charges", "/again"].map(|path| thread::spawn(move || attempt(address, path, "k"))).into();
    eventually("both were sent", || (service.effects() == 2).then_some(()));
    gateway.kill();
    for one in sent {
        assert_eq!(one.join().unwrap(), None, "the connection broke");
    }

    let gateway = home.start(&service.url());
    let began = Instant::now();
    let (status, body) = attempt(gateway.address, "/charges", "k").expect("it is answered");
    assert!(status == 409 && body.contains("outcome-unknown"), "{status} {body}");
    assert!(began.elapsed() < Duration::from_secs(10), "it hung for {:?}", began.elapsed());
    let (status, body) = attempt(gateway.address, "/again", "k").expect("it is answered");
    assert_eq!(status, 504, "it was sent again, and timed out: {body}");
    assert!(began.elapsed() < Duration::from_secs(20), "it hung for {:?}", began.elapsed());
    assert_eq!(service.effects(), 3);

    // It cannot be settled as not done while the service may still be running it, except with force.
    let settle = |more: &[&str]| {
        let admin = format!("http://{}", gateway.admin);
        let which = ["receipts", "--admin", &admin, "release", "anonymous", "POST /charges", "k", "--yes"];
        onceward(&[&which[..], more].concat()).output().unwrap()
    };
    let refused = settle(&[]);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("may still take effect"), "{said}");
    assert!(settle(&["--force"]).status.success());
}

/// A slow service, so that kills happen during requests. It says what it has done if it is asked.
fn slow_service() -> Service {
    let (calls, done) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, String>::new()));
    Service::start(move |request| {
        if let Some(key) = request.line.strip_prefix("GET /about/") {
            let key = key.split(' ').next().unwrap();
            let answer = match done.lock().unwrap().get(key) {
                Some(body) => result("200 OK", "201", body),
                None => result("404 Not Found", "none", ""),
            };
            return Reply::Raw(answer.into_bytes());
        }
        let call = calls.fetch_add(1, Ordering::SeqCst);
        let body = format!("{{\"call\":{call},\"key\":\"{}\"}}", request.key());
        done.lock().unwrap().insert(request.key().to_owned(), body.clone());
        thread::sleep(Duration::from_millis(call * 7 % 23));
        Reply::created(body)
    })
}

/// What the service says of an earlier request.
fn result(status: &str, outcome: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nOnceward-Status: {outcome}\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn kill_and_restart(
    mut gateway: Gateway,
    home: &Home,
    service: &Service,
    here: &Mutex<SocketAddr>,
    sent: &Mutex<SentKeys>,
) -> Gateway {
    let mut restarts = Vec::new();
    for kill in 0..kills() as u64 {
        // Waits for an effect since the last start, so that every kill hits a working gateway.
        let before = service.effects();
        eventually("the gateway works", || (service.effects() > before + 20).then_some(()));
        thread::sleep(Duration::from_millis(kill * 37 % 101));
        gateway.kill();
        let keys: Vec<_> = std::mem::take(&mut *sent.lock().unwrap()).into_values().flatten().collect();
        let started = Instant::now();
        gateway = home.start(&service.url());
        let (listened, start_work) = (Instant::now(), gateway.processor_time());
        *here.lock().unwrap() = gateway.address;
        assert!(keys.len() >= CLIENTS, "{keys:?}");
        let (asked, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(path, _)| path == "/asked");
        let (answered, asked_answered) = thread::scope(|scope| {
            let asked = scope.spawn(|| all_are_answered(&asked, gateway.address, started));
            (all_are_answered(&others, gateway.address, started), asked.join().unwrap())
        });
        let restart = Restart {
            answered: answered - started,
            asked_answered: asked_answered - started,
            listened: listened - started,
            start_work,
        };
        let counted = |answered: Instant| start_work + (answered - listened);
        assert!(counted(answered) < ANSWERED_WITHIN, "{restart:?}");
        assert!(counted(asked_answered) < ANSWERED_WITHIN + LATE_EFFECT_MAX, "{restart:?}");
        restarts.push(restart);
        if restarts.len().is_multiple_of(100) {
            println!("{} restarts, the last: {:?}", restarts.len(), restarts.last());
        }
    }
    restarts.sort_by_key(|restart| restart.answered);
    let (median, slowest) = (&restarts[restarts.len() / 2], &restarts[restarts.len() - 1]);
    println!("{} restarts, the median: {median:?}, the slowest: {slowest:?}", restarts.len());
    let late = restarts.iter().filter(|restart| restart.answered > ANSWERED_WITHIN).count();
    println!("{late} over {ANSWERED_WITHIN:?} by the clock");
    // Whatever else the machine does: half of the restarts of a long campaign. A short one has too few.
    if restarts.len() >= 100 {
        assert!(median.answered < ANSWERED_WITHIN, "by the clock: {median:?}");
    }
    gateway
}

/// How long one restart took, from the start of the process on.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Restart {
    /// Until the last key had its answer, those aside about which the service is asked.
    answered: Duration,
    /// Until the last of these had.
    asked_answered: Duration,
    /// Until the process listened.
    listened: Duration,
    /// The processor time that it had used by then.
    start_work: Duration,
}

/// Checks that each of these keys, done or in flight at the kill, gets its final answer. Returns when the last one had it.
fn all_are_answered(keys: &[(String, String)], address: SocketAddr, started: Instant) -> Instant {
    let ask = |part: &[(String, String)]| {
        for (path, key) in part {
            loop {
                let answer = attempt(address, path, key);
                let after = started.elapsed();
                assert!(after < ANSWERED_AT_LAST, "{path} {key}: {answer:?} after {after:?}");
                if is_final(path, answer.as_ref()) {
                    break;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    };
    thread::scope(|scope| {
        let parts: Vec<_> =
            keys.chunks(keys.len().div_ceil(4).max(1)).map(|part| scope.spawn(move || ask(part))).collect();
        for part in parts {
            part.join().unwrap();
        }
    });
    Instant::now()
}

/// Whether it is the outcome, or that it is unknown: the latter only on the route that holds it.
fn is_final(path: &str, answer: Option<&(u16, String)>) -> bool {
    match answer {
        Some((201, _)) => true,
        Some((409, body)) => path == "/charges" && body.contains("outcome-unknown"),
        _ => false,
    }
}

/// Sends one intent after the other, each until it has a final answer.
fn client(
    number: usize,
    path: &str,
    here: &Mutex<SocketAddr>,
    over: &AtomicBool,
    sent: &Mutex<SentKeys>,
) -> Vec<((String, String), FinalAnswer)> {
    let mut all = Vec::new();
    for intent in 0.. {
        let key = format!("c{number}-{intent}");
        sent.lock().unwrap().entry(number).or_default().push((path.to_owned(), key.clone()));
        let told = retry_until_answered(path, &key, here, over);
        let ended = told == FinalAnswer::Nothing;
        all.push(((path.to_owned(), key), told));
        if ended {
            break;
        }
    }
    all
}

/// Sends the request until it has a final answer, or the test is over.
fn retry_until_answered(path: &str, key: &str, here: &Mutex<SocketAddr>, over: &AtomicBool) -> FinalAnswer {
    while !over.load(Ordering::SeqCst) {
        let address = *here.lock().unwrap();
        match attempt(address, path, key) {
            Some((201, body)) => return FinalAnswer::Done(body),
            Some((409, body)) if path != "/asked" && body.contains("outcome-unknown") => {
                return FinalAnswer::Unknown;
            }
            // In progress, or not known yet, or the gateway is down: retry.
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
    FinalAnswer::Nothing
}

/// One request; `None` if the connection broke.
fn attempt(address: SocketAddr, path: &str, key: &str) -> Option<(u16, String)> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: {key}\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    socket.write_all(head.as_bytes()).ok()?;
    let mut said = String::new();
    socket.read_to_string(&mut said).ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    // A truncated answer does not count.
    if body.len() != length.parse::<usize>().ok()? {
        return None;
    }
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

fn check(told: &BTreeMap<(String, String), FinalAnswer>, service: &Service, gateway: &Gateway) {
    let mut effects: BTreeMap<(String, String), usize> = BTreeMap::new();
    for request in service.received() {
        let path = request.line.split(' ').nth(1).unwrap().to_owned();
        *effects.entry((path, request.key().to_owned())).or_default() += 1;
    }
    let (mut done, mut unknown) = (0, 0);
    for (intent, told) in told {
        let (path, key) = intent;
        let count = effects.get(intent).copied().unwrap_or(0);
        if path != "/again" {
            assert!(count <= 1, "{intent:?} ran {count} times");
        }
        // Every key reaches a final answer within a few leases: none is blocked.
        let began = Instant::now();
        let last = eventually("the key comes to an end", || {
            let answer = attempt(gateway.address, path, key)?;
            let running = answer.0 == 409 && answer.1.contains("in-progress");
            let asked = path == "/asked" && answer.0 == 409 && answer.1.contains("outcome-unknown");
            (!running && !asked).then_some(answer)
        });
        assert!(began.elapsed() < Duration::from_secs(30), "{intent:?}");
        match (told, &last) {
            (FinalAnswer::Done(body), (201, again)) => assert_eq!(body, again, "{intent:?}"),
            (FinalAnswer::Done(_), other) => panic!("{intent:?} was acknowledged and is now {other:?}"),
            (_, (409, body)) if path == "/charges" && body.contains("outcome-unknown") => {}
            (FinalAnswer::Unknown, other) => panic!("{intent:?} was unknown and is now {other:?}"),
            (FinalAnswer::Nothing, (201, _)) => {}
            (FinalAnswer::Nothing, other) => panic!("{intent:?} ended as {other:?}"),
        }
        match last.0 {
            201 => done += 1,
            _ => unknown += 1,
        }
    }
    assert!(done > kills() * 10, "only {done} were done");
    println!("{} kills: {done} done, {unknown} unknown, {} effects", kills(), service.effects());
}
