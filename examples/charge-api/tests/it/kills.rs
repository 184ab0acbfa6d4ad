//! Clients that retry until they are answered, while the service is killed again and again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::service::{Service, post};
use crate::usual_or_long;

const CLIENTS: usize = 4;
/// Longest time until a charge is acknowledged, on a loaded machine.
const ACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);

/// Sends a charge until it is acknowledged.
fn retry_until_acknowledged(address: SocketAddr, key: &str) -> String {
    let start = Instant::now();
    loop {
        match post(address, key, &json!({"account": key, "amount": 12})) {
            Ok((201, body)) => return body,
            // It was committed, or it was not: that it is unknown is impossible here.
            Ok((_, body)) if body.contains("outcome-unknown") => panic!("{key}: {body}"),
            // On its way, or the service is away: what a client retries.
            Ok((409 | 500 | 503, _)) | Err(_) => {}
            Ok(other) => panic!("{key}: {other:?}"),
        }
        assert!(start.elapsed() < ACKNOWLEDGED_MAX, "{key} is never acknowledged");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Makes one charge after the other, each with a key of its own, and sends some again after they were acknowledged.
fn client(number: usize, address: SocketAddr, load: &Load) -> HashMap<String, String> {
    let mut answers = HashMap::new();
    for charge in 0.. {
        // Only between two keys: at the end, what was asked was also acknowledged.
        if load.stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{number}-{charge}");
        let answer = retry_until_acknowledged(address, &key);
        if charge % 7 == 0 {
            assert_eq!(retry_until_acknowledged(address, &key), answer, "another answer for {key}");
        }
        answers.insert(key, answer);
        load.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    answers
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    acknowledged: AtomicUsize,
}

impl Load {
    /// Waits until this many more were acknowledged: proof that the service is back.
    fn until_more(&self, more: usize) {
        let (goal, start) = (self.acknowledged.load(Ordering::Relaxed) + more, Instant::now());
        while self.acknowledged.load(Ordering::Relaxed) < goal {
            assert!(start.elapsed() < ACKNOWLEDGED_MAX, "nothing is acknowledged any more");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Ends the load, whatever happens to the thread that drives it: the clients would go on forever.
struct StopOnDrop<'a>(&'a Load);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// The row and the receipt of a request are one commit of sqlx: one charge for each key that was acknowledged, none for
/// any other, and every answer again.
#[test]
fn a_service_that_is_killed_charges_once() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("charges.db").display());
    let kills = usual_or_long(10, 200);
    let service = Service::start(&database, "127.0.0.1:0");
    let (address, load) = (service.address, Load::default());
    let mut service = Some(service);
    let answers = thread::scope(|threads| {
        let load = &load;
        let stop = StopOnDrop(load);
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| threads.spawn(move || client(number, address, load))).collect();
        for kill in 0..kills {
            load.until_more(3);
            // At any point of a request, spread over a few milliseconds.
            thread::sleep(Duration::from_micros(kill * 7919 % 20_000));
            drop(service.take());
            service = Some(Service::start(&database, &address.to_string()));
        }
        load.until_more(20);
        drop(stop);
        let mut answers = HashMap::new();
        for client in clients {
            answers.extend(client.join().unwrap());
        }
        answers
    });
    let service = service.expect("it was started again");
    let charges = service.charges();
    let mut by_key: HashMap<&str, usize> = HashMap::new();
    for charge in charges.as_array().unwrap() {
        *by_key.entry(charge["account"].as_str().unwrap()).or_default() += 1;
    }
    for (key, answer) in &answers {
        assert_eq!(by_key.get(key.as_str()), Some(&1), "charges for {key}");
        assert_eq!(&retry_until_acknowledged(address, key), answer, "another answer for {key}");
    }
    assert_eq!(by_key.len(), answers.len(), "charges without an acknowledgement");
    assert_eq!(service.charges(), charges, "a replay charged");
    println!("{kills} kills, {} charges for {} keys, all replayed", by_key.len(), answers.len());
}
