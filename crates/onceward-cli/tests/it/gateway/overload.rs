//! An overload through real sockets: ten times as much arrives as the service can do. Its capacity is that of its own
//! workers, which sleep, so the speed of the machine matters little.

#![allow(
    clippy::cast_precision_loss,
    clippy::unchecked_time_subtraction,
    reason = "small numbers, known at compile time"
)]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Reply, Service};

const WORKERS: usize = 4;
const WORK: Duration = Duration::from_millis(100);
const CAPACITY_PER_SECOND: usize = WORKERS * 1_000 / 100;
const STORM: Duration = Duration::from_secs(5);
/// The limit is found in this time.
const ONSET: Duration = Duration::from_millis(1_500);
/// Requests that are done before the storm, and repeated in it.
const DONE: usize = 50;
/// Clients wait this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// A service with four workers. Requests queue for them. It knows which keys have come.
fn service() -> (Service, Arc<Mutex<HashSet<String>>>) {
    let free = Arc::new((Mutex::new(WORKERS), Condvar::new()));
    let come = Arc::new(Mutex::new(HashSet::new()));
    let log = come.clone();
    let service = Service::start(move |request| {
        log.lock().unwrap().insert(request.key().trim_matches('"').to_owned());
        let (count, freed) = &*free;
        let mut guard = freed.wait_while(count.lock().unwrap(), |count| *count == 0).unwrap();
        *guard -= 1;
        drop(guard);
        thread::sleep(WORK);
        *count.lock().unwrap() += 1;
        freed.notify_one();
        Reply::created("{}")
    });
    (service, come)
}

struct Seen {
    status: u16,
    retry_after: Option<u64>,
    sent_after: Duration,
    took: Duration,
}

/// Sends this many requests a second, each with a key of its own, and collects the answers.
fn load(gateway: &Gateway, name: &str, per_second: usize, time: Duration) -> Vec<Seen> {
    let began = Instant::now();
    let pause = Duration::from_secs(1) / u32::try_from(per_second).unwrap();
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for number in 0.. {
            let due = pause * number;
            if due >= time {
                break;
            }
            thread::sleep(due.saturating_sub(began.elapsed()));
            clients.push(scope.spawn(move || {
                let sent = Instant::now();
                let answer = gateway.charge(&format!("{name}-{number}"), "{}");
                let retry_after = answer.field("retry-after").map(|after| after.parse().unwrap());
                Seen { status: answer.status, retry_after, sent_after: sent - began, took: sent.elapsed() }
            }));
        }
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

/// Answers in time, per second, to what was sent after the onset.
fn goodput(seen: &[Seen]) -> f64 {
    let useful = seen.iter().filter(|seen| seen.status == 201 && seen.took <= PATIENCE);
    // By the moment of the answer.
    let useful = useful.filter(|seen| (ONSET..STORM).contains(&(seen.sent_after + seen.took)));
    useful.count() as f64 / (STORM - ONSET).as_secs_f64()
}

#[test]
fn at_ten_times_its_capacity_a_service_stays_useful_and_replays_are_answered() {
    let (home, (service, come)) = (Home::new(), service());
    home.write_config("[[route]]\npath = \"/charges\"\nshedding = { latency = \"400ms\" }");
    let gateway = home.start(&service.url());
    // Fewer at once than may begin before the limit has learned anything.
    for some in (0..DONE).collect::<Vec<_>>().chunks(5) {
        thread::scope(|scope| {
            for done in some {
                let gateway = &gateway;
                scope.spawn(move || assert_eq!(gateway.charge(&format!("done-{done}"), "{}").status, 201));
            }
        });
    }
    let (storm, replays, duplicates) = thread::scope(|scope| {
        let replays = scope.spawn(|| {
            let (began, mut slowest) = (Instant::now(), Duration::ZERO);
            for number in (0..).take_while(|_| began.elapsed() < STORM) {
                let sent = Instant::now();
                let answer = gateway.charge(&format!("done-{}", number % DONE), "{}");
                assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, Some("true")));
                slowest = slowest.max(sent.elapsed());
                thread::sleep(Duration::from_millis(20));
            }
            slowest
        });
        let duplicates = scope.spawn(|| duplicates_of_running_work(&gateway, &come));
        let storm = load(&gateway, "storm", 10 * CAPACITY_PER_SECOND, STORM);
        (storm, replays.join().unwrap(), duplicates.join().unwrap())
    });
    let useful = goodput(&storm) / CAPACITY_PER_SECOND as f64;
    let mut admitted: Vec<Duration> = storm
        .iter()
        .filter(|seen| seen.status == 201 && seen.sent_after > ONSET)
        .map(|seen| seen.took)
        .collect();
    admitted.sort();
    let p99 = admitted[admitted.len() * 99 / 100];
    println!(
        "with shedding: {useful:.2} of the capacity in time, p99 {p99:?}, slowest replay {replays:?}, {} duplicates of \
         running work, slowest {:?}",
        duplicates.len(),
        duplicates.iter().max()
    );
    assert!(useful >= 0.9, "{useful}");
    assert!(p99 <= PATIENCE, "{p99:?}");
    assert!(replays < PATIENCE, "{replays:?}");
    assert!(!duplicates.is_empty() && duplicates.iter().all(|took| *took <= PATIENCE), "{duplicates:?}");
    let refused: Vec<u64> =
        storm.iter().filter(|seen| seen.status == 503).map(|seen| seen.retry_after.unwrap()).collect();
    assert!(refused.len() > storm.len() / 2, "{} of {}", refused.len(), storm.len());
    // By the rate at which work finishes, and not all at the same moment.
    assert!(refused.iter().any(|after| *after >= 5) && refused.iter().min() != refused.iter().max());
    assert!(gateway.metric("onceward_http_shedding_limit{route=\"/charges\"}") < 100.0);
    // No collapse afterwards.
    let after = load(&gateway, "after", CAPACITY_PER_SECOND / 2, Duration::from_secs(1));
    assert!(after.iter().all(|seen| seen.status == 201 && seen.took <= PATIENCE));
}

/// Sends requests in the storm until it is over, and of each that has reached the service a duplicate, which must wait for
/// the answer of the first and get it. Returns how long each took.
fn duplicates_of_running_work(gateway: &Gateway, come: &Mutex<HashSet<String>>) -> Vec<Duration> {
    let (began, mut took) = (Instant::now(), Vec::new());
    for number in (0..).take_while(|_| began.elapsed() < STORM) {
        let key = format!("twice-{number}");
        thread::scope(|scope| {
            let first = scope.spawn(|| gateway.charge(&key, "{}"));
            while !come.lock().unwrap().contains(&key) {
                if first.is_finished() {
                    // It was shed: there is nothing to wait for.
                    assert_eq!(first.join().unwrap().status, 503);
                    return;
                }
                thread::sleep(Duration::from_millis(1));
            }
            let sent = Instant::now();
            let second = gateway.charge(&key, "{}");
            took.push(sent.elapsed());
            assert_eq!(first.join().unwrap().status, 201);
            assert_eq!((second.status, second.field("idempotent-replayed")), (201, Some("true")));
        });
        thread::sleep(Duration::from_millis(5));
    }
    took
}

/// Duplicates that wait have a bound of their own. Over it they are told to come again, and nothing else is refused.
#[test]
fn waiting_duplicates_over_their_bound_keep_nobody_from_new_work_or_a_replay() {
    let home = Home::new();
    home.write_config("answering_max = 8");
    let held = Arc::new((Mutex::new(false), Condvar::new()));
    let service = {
        let held = held.clone();
        Service::start(move |_| {
            let (held, released) = &*held;
            drop(released.wait_while(held.lock().unwrap(), |held| *held).unwrap());
            Reply::created("{}")
        })
    };
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("done", "{}").status, 201);
    *held.0.lock().unwrap() = true;
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !so() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(2));
        }
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| gateway.charge("k", "{}"));
        until("the first never came", &|| service.effects() == 2);
        // One caller has half of the places, and a quarter more.
        let mut waiting = Vec::new();
        for places in 1..=6 {
            waiting.push(scope.spawn(|| gateway.charge("k", "{}")));
            until("it does not wait", &|| gateway.metric("onceward_http_answering") >= f64::from(places));
        }
        let refused = gateway.charge("k", "{}");
        assert_eq!(refused.problem(), (409, "in-progress".into()));
        assert!(refused.field("retry-after").is_some());
        let new = scope.spawn(|| gateway.charge("new", "{}"));
        until("new work is kept out", &|| service.effects() == 3);
        assert_eq!(gateway.charge("done", "{}").field("idempotent-replayed"), Some("true"));
        *held.0.lock().unwrap() = false;
        held.1.notify_all();
        assert_eq!((first.join().unwrap().status, new.join().unwrap().status), (201, 201));
        for duplicate in waiting {
            let answer = duplicate.join().unwrap();
            assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, Some("true")));
        }
    });
    assert_eq!(service.effects(), 3);
}

/// Each route has a limit of its own, and sheds all of its work, also that without a key.
#[test]
fn a_slow_endpoint_is_shed_with_and_without_keys_and_sheds_no_other() {
    const LIMIT: Duration = Duration::from_secs(30);
    let home = Home::new();
    home.write_config(
        "[[route]]\npath = \"/slow\"\nshedding = { latency = \"20ms\" }\n\
         [[route]]\npath = \"/quick\"\nshedding = { latency = \"5s\" }",
    );
    let service = Service::start(|request| {
        if request.line.contains("/slow") {
            thread::sleep(Duration::from_millis(200));
        }
        Reply::created("{}")
    });
    let gateway = home.start(&service.url());
    let limit = || gateway.metric("onceward_http_shedding_limit{route=\"/slow\"}");
    let begun = Instant::now();
    let (over, slow, quick) = (AtomicBool::new(false), Mutex::new([0; 2]), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for caller in 0..24 {
            let (gateway, over, slow) = (&gateway, &over, &slow);
            scope.spawn(move || {
                for number in (0..).take_while(|_| !over.load(Ordering::SeqCst) && begun.elapsed() < LIMIT) {
                    let key = format!("slow-{caller}-{number}");
                    let keyed = caller % 2;
                    let fields = [("Idempotency-Key", key.as_str())];
                    let answer = gateway.post("/slow", &fields[..keyed], "{}");
                    assert!([201, 503].contains(&answer.status), "{answer:?}");
                    slow.lock().unwrap()[keyed] += usize::from(answer.status == 503);
                }
            });
        }
        let mut number = 0;
        // Until both kinds of requests were shed, and some time in which the other route is used.
        while slow.lock().unwrap().contains(&0) || number < 100 {
            assert!(begun.elapsed() < LIMIT, "it was not shed: {:?}", slow.lock().unwrap());
            quick.lock().unwrap().push(
                gateway.post("/quick", &[("Idempotency-Key", number.to_string().as_str())], "{}").status,
            );
            number += 1;
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(limit() < 20.0, "{}", limit());
    let quick = quick.into_inner().unwrap();
    assert!(quick.iter().all(|status| *status == 201), "{quick:?}");
}

/// The same without shedding: nearly every answer comes too late, during the storm and after it.
#[test]
fn without_shedding_the_same_load_is_a_collapse() {
    let (home, (service, _)) = (Home::new(), service());
    let gateway = home.start(&service.url());
    let mut useful = 0.0;
    thread::scope(|scope| {
        let storm = scope.spawn(|| load(&gateway, "storm", 10 * CAPACITY_PER_SECOND, Duration::from_secs(2)));
        thread::sleep(Duration::from_millis(2_500));
        let after = load(&gateway, "after", CAPACITY_PER_SECOND / 2, Duration::from_millis(500));
        assert!(after.iter().all(|seen| seen.took > PATIENCE), "the end of the storm does not end it");
        let storm = storm.join().unwrap();
        let in_time = storm.iter().filter(|seen| seen.took <= PATIENCE).count();
        useful = in_time as f64 / storm.len() as f64;
    });
    println!("without shedding: {useful:.2} of the requests are answered in time");
    assert!(useful < 0.2, "{useful}");
}
