//! Kills the gateway repeatedly while events arrive, twice and out of order. Every event that was acknowledged is
//! delivered, those of one object in the order of their arrival; a service that honours the key has one effect of each.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Reply, Service};
use super::webhooks::{signed, start, storing};

/// Events of one object.
const PER_OBJECT: usize = 20;
/// Everything is delivered this soon after the last request.
const DELIVERED_WITHIN: Duration = Duration::from_secs(120);

struct Scale {
    events: usize,
    kills: usize,
    senders: usize,
    /// Requests a second, all senders together.
    rate: u32,
}

fn is_long() -> bool {
    std::env::var_os("ONCEWARD_LONG").is_some()
}

fn scale() -> Scale {
    if is_long() {
        Scale { events: 50_000, kills: 100, senders: 32, rate: 2_000 }
    } else {
        Scale { events: 500, kills: 10, senders: 8, rate: 500 }
    }
}

/// The events of one object in the order in which they are sent: neighbours are swapped now and then.
fn plan(object: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (0..count.saturating_sub(1)).filter(|at| (at * 7 + object).is_multiple_of(5)) {
        order.swap(at, at + 1);
    }
    order
}

fn body(object: usize, n: usize) -> String {
    format!("{{\"object\":\"o{object}\",\"n\":{n}}}")
}

/// A sender of events: it keeps its connection, and the gateway may be killed at any moment.
#[derive(Default)]
struct Sender(Option<BufReader<TcpStream>>);

impl Sender {
    /// Sends an event until it is acknowledged.
    fn send(&mut self, here: &Mutex<SocketAddr>, object: usize, n: usize) {
        let (id, body) = (format!("evt_{object}_{n}"), body(object, n));
        let deadline = Instant::now() + Duration::from_secs(120);
        while Instant::now() < deadline {
            if self.try_send(here, &id, &body).is_ok_and(|status| status.starts_with("HTTP/1.1 202 ")) {
                return;
            }
            self.0 = None;
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{id} was never acknowledged");
    }

    /// The status line of the answer, which has been read to its end.
    fn try_send(&mut self, here: &Mutex<SocketAddr>, id: &str, body: &str) -> io::Result<String> {
        let connection = match &mut self.0 {
            Some(connection) => connection,
            none => {
                let socket = TcpStream::connect(*here.lock().unwrap())?;
                socket.set_read_timeout(Some(Duration::from_secs(10)))?;
                socket.set_nodelay(true)?;
                none.insert(BufReader::new(socket))
            }
        };
        let mut request = String::from("POST /hooks HTTP/1.1\r\nHost: pay.example\r\n");
        for (name, value) in signed(id, body) {
            let _ = write!(request, "{name}: {value}\r\n");
        }
        let length = body.len();
        let _ = write!(request, "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        connection.get_mut().write_all(request.as_bytes())?;
        let mut status = String::new();
        connection.read_line(&mut status)?;
        let mut length = 0;
        loop {
            let mut field = String::new();
            if connection.read_line(&mut field)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
            }
            if field == "\r\n" {
                break;
            }
        }
        connection.read_exact(&mut vec![0; length])?;
        Ok(status)
    }
}

/// Kills and starts again while events are sent and delivered. Returns the last gateway, and for how long there was none
/// while events were sent.
fn kill_and_restart(
    home: &Home,
    service: &Service,
    gateway: Gateway,
    here: &Mutex<SocketAddr>,
    sending: &thread::JoinHandle<(usize, Duration)>,
    scale: &Scale,
) -> (Gateway, Duration) {
    let (mut gateway, mut down) = (gateway, Duration::ZERO);
    for kill in 1..=scale.kills {
        let share = scale.events * kill / (scale.kills + 2);
        let deadline = Instant::now() + Duration::from_secs(60);
        while service.effects() < share && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let killed = Instant::now();
        gateway.kill();
        gateway = start(home, service);
        *here.lock().unwrap() = gateway.address;
        if !sending.is_finished() {
            down += killed.elapsed();
        }
    }
    (gateway, down)
}

/// What one sender sends, in its order: an event of each of its objects, then the next one of each. Every fourth time an
/// earlier event of the object comes again.
fn requests_of(sender: usize, senders: usize, objects: usize) -> Vec<(usize, usize)> {
    let mut requests = Vec::new();
    for step in 0..PER_OBJECT {
        for object in (0..objects).filter(|object| object % senders == sender) {
            let order = plan(object, PER_OBJECT);
            requests.push((object, order[step]));
            if (step + object).is_multiple_of(4) {
                requests.push((object, order[step / 2]));
            }
        }
    }
    requests
}

/// Sends everything. Each request has its time, counted from the beginning of all: a sender that was held up, as all are
/// while the gateway starts again, does not send more slowly afterwards. Returns how many requests were acknowledged, and
/// how long that took.
fn send_all(here: &Arc<Mutex<SocketAddr>>, scale: &Scale) -> thread::JoinHandle<(usize, Duration)> {
    let (here, senders, rate) = (here.clone(), scale.senders, scale.rate);
    let objects = scale.events / PER_OBJECT;
    thread::spawn(move || {
        let start = Instant::now();
        let between = Duration::from_secs(1) * u32::try_from(senders).unwrap() / rate;
        let sent = AtomicUsize::new(0);
        thread::scope(|scope| {
            for sender in 0..senders {
                let (here, sent) = (&here, &sent);
                scope.spawn(move || {
                    let mut connection = Sender::default();
                    for (number, (object, n)) in (0..).zip(requests_of(sender, senders, objects)) {
                        let at = start + between * number;
                        thread::sleep(at.saturating_duration_since(Instant::now()));
                        connection.send(here, object, n);
                        sent.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        (sent.into_inner(), start.elapsed())
    })
}

#[test]
fn no_acknowledged_event_is_lost_and_objects_keep_their_order() {
    let scale = scale();
    let home = Home::new();
    home.write_config(&storing("order_by = \"body:/object\"\nlease = \"2s\""));
    // A service that honours the key has one effect for each: this is its ledger.
    let honoured: Arc<Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
    let ledger = honoured.clone();
    let service = Service::start(move |got| {
        ledger.lock().unwrap().entry(got.key().to_owned()).or_insert_with(|| got.body.clone());
        // Long enough for a kill to hit deliveries.
        thread::sleep(Duration::from_millis(2));
        Reply::Answer(200, "{}".into())
    });
    let gateway = start(&home, &service);
    let here = Arc::new(Mutex::new(gateway.address));
    let sending = send_all(&here, &scale);
    let (gateway, down) = kill_and_restart(&home, &service, gateway, &here, &sending, &scale);
    let (requests, took) = sending.join().unwrap();
    let events = scale.events / PER_OBJECT * PER_OBJECT;
    let deadline = Instant::now() + DELIVERED_WITHIN;
    while honoured.lock().unwrap().len() < events && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }

    // One that does not honour it has at least one: a try whose answer the gateway did not live to record is made again.
    let received = service.received();
    let honoured = honoured.lock().unwrap();
    let again = received.len() - honoured.len();
    // A gateway that is not there takes nothing.
    let per_second = f64::from(u32::try_from(requests).unwrap()) / took.saturating_sub(down).as_secs_f64();
    println!(
        "{events} events and {} duplicates of senders in {took:.1?}, {per_second:.0} a second while the gateway ran; {} \
         kills ({down:.1?} without a gateway): {} effects where the key is honoured, {} where it is not",
        requests - events,
        scale.kills,
        honoured.len(),
        received.len()
    );
    assert_eq!(honoured.len(), events, "one effect each");
    assert!(received.iter().all(|got| honoured[got.key()] == got.body), "no key for two events");
    let bodies: HashSet<&Vec<u8>> = honoured.values().collect();
    assert_eq!(bodies.len(), events, "one key each");
    assert!(
        again <= scale.kills * 64,
        "{again} deliveries too many: only tries under way at a kill are made again"
    );
    let mut first: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut seen = HashSet::new();
    for got in received.iter().filter(|got| seen.insert(&got.body)) {
        let event: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        let object = event["object"].as_str().unwrap().strip_prefix('o').unwrap().parse().unwrap();
        first.entry(object).or_default().push(event["n"].as_u64().unwrap());
    }
    for object in 0..scale.events / PER_OBJECT {
        let sent: Vec<u64> = plan(object, PER_OBJECT).into_iter().map(|n| n as u64).collect();
        assert_eq!(first[&(object as u64)], sent, "object {object}");
    }
    assert!(gateway.metric("onceward_webhook_events_dead_total") < 0.5);
    if is_long() {
        assert!(
            again > 0,
            "no kill has hit a delivery: nothing was shown about services that ignore the key"
        );
        assert!(per_second > 0.9 * f64::from(scale.rate), "{per_second} requests a second");
    }
}
