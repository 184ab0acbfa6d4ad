//! Honest clients beside silent, slow and unreading ones, which are processes of their own. Short by default;
//! `ONCEWARD_LONG=1` plays the numbers that the documentation states, in an optimised build.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::real_upstreams::{free_port, server};
use super::stage::{Gateway, Home, Service, rounds};
use crate::process::eventually;

/// Connects silent sockets, slow bodies and clients that do not read, and connects them again when they are closed. After
/// each look it says how many of each kind are connected, and how many slow bodies were answered with 408. They have two
/// addresses; honest clients have another one.
const ATTACKERS: &str = r#"
import resource, socket, sys, time
port, idle, slow, unread = map(int, sys.argv[1:])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
keys = refused = 0
def silent(): return b""
def slow_body():
    head = b"POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: slow\r\nContent-Length: 262144\r\n\r\n"
    return head + b"x" * 100000
def unread_answer(): return b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
# Holds a key meanwhile, each one of its own.
def unread_guarded_answer():
    global keys
    keys += 1
    return b"POST /large HTTP/1.1\r\nHost: a\r\nIdempotency-Key: unread%d\r\nContent-Length: 0\r\n\r\n" % keys
def connect(number, says):
    try:
        one = socket.socket()
        one.bind(("127.0.0.66" if number % 2 else "127.0.0.67", 0))
        one.settimeout(10)
        one.connect(("127.0.0.1", port))
        one.setblocking(False)
        one.send(says())
    except OSError: return None
    return one
def is_open(one):
    if one is None: return False
    try: return one.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError: return True
    except OSError: return False
# Whatever it is answered, it is over.
def goes_on(one):
    global refused
    if one is None: return False
    try:
        one.send(b"x")
        refused += one.recv(4096).startswith(b"HTTP/1.1 408")
        return False
    except BlockingIOError: return True
    except OSError: return False
kinds = [silent] * idle + [slow_body] * slow
kinds += [unread_answer] * (unread // 2) + [unread_guarded_answer] * (unread // 2)
sockets = [connect(number, says) for number, says in enumerate(kinds)]
while True:
    count = {silent: 0, slow_body: 0, unread_answer: 0, unread_guarded_answer: 0}
    for number, says in enumerate(kinds):
        if not (goes_on if says is slow_body else is_open)(sockets[number]): sockets[number] = connect(number, says)
        count[says] += sockets[number] is not None
    print(*count.values(), refused, flush=True)
    time.sleep(1)
"#;

/// How many clients of each kind there are.
#[derive(Clone, Copy, Debug, Default)]
struct Attack {
    silent: usize,
    slow_bodies: usize,
    unread: usize,
    unread_guarded: usize,
}

impl Attack {
    /// What is played.
    fn played() -> Self {
        if is_long() {
            Self { silent: 10_000, slow_bodies: 300, unread: 50, unread_guarded: 50 }
        } else {
            Self { silent: 400, slow_bodies: 30, unread: 5, unread_guarded: 5 }
        }
    }

    /// What must be connected at least: nine tenths, of the silent ones nine tenths of the places that the others leave
    /// them.
    fn required(connections_max: usize) -> Self {
        let Self { silent, slow_bodies, unread, unread_guarded } = Self::played();
        let places = connections_max - slow_bodies - unread - unread_guarded - HONEST;
        let nine_tenths = |number: usize| number * 9 / 10;
        // The number that the documentation states, where the limit on file descriptors allows for it.
        let silent =
            if is_long() && connections_max == 10_000 { 9_000 } else { nine_tenths(silent.min(places)) };
        Self {
            silent,
            slow_bodies: nine_tenths(slow_bodies),
            unread: nine_tenths(unread),
            unread_guarded: nine_tenths(unread_guarded),
        }
    }

    fn has(self, required: Self) -> bool {
        self.silent >= required.silent
            && self.slow_bodies >= required.slow_bodies
            && self.unread >= required.unread
            && self.unread_guarded >= required.unread_guarded
    }
}

/// Honest clients, each with a connection.
const HONEST: usize = 4;

/// The attackers, on whatever the processors have left.
struct Attackers {
    child: Child,
    /// What they said last: who is connected, and the answers 408 so far.
    said: Arc<Mutex<(Attack, usize)>>,
}

impl Attackers {
    fn start(gateway: &Gateway) -> Self {
        let Attack { silent, slow_bodies, unread, unread_guarded } = Attack::played();
        let numbers = [silent, slow_bodies, unread + unread_guarded].map(|number| number.to_string());
        let mut child = Command::new("nice")
            .args(["-n", "19", "python3", "-c", ATTACKERS, &gateway.address.port().to_string()])
            .args(numbers)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::<Mutex<(Attack, usize)>>::default();
        let (lines, latest) = (BufReader::new(child.stdout.take().unwrap()).lines(), said.clone());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let numbers: Vec<usize> = line.split(' ').map(|number| number.parse().unwrap()).collect();
                let [silent, slow_bodies, unread, unread_guarded, refused] = numbers[..] else {
                    panic!("{line}")
                };
                *latest.lock().unwrap() = (Attack { silent, slow_bodies, unread, unread_guarded }, refused);
            }
        });
        Self { child, said }
    }

    fn connected(&self) -> Attack {
        self.said.lock().unwrap().0
    }

    fn refused(&self) -> usize {
        self.said.lock().unwrap().1
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The connections that the gateway takes: as many as its limit on file descriptors is enough for, at most 10,000.
fn connections_max(gateway: &Gateway) -> usize {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.child.id())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let descriptors: usize = line.split_whitespace().next().unwrap().parse().unwrap_or(usize::MAX);
    // Two for each, and some for the rest.
    let connections = (descriptors.saturating_sub(256) / 2).min(10_000);
    println!("{descriptors} file descriptors are enough for {connections} connections");
    connections
}

/// Not without optimisation: to accept a connection costs a multiple there, and the long form has hundreds of new ones a
/// second, so that its ratio would say nothing about the gateway.
fn is_long() -> bool {
    rounds(0, 1) == 1 && !cfg!(debug_assertions)
}

/// A service that answers `{}`, and eight mebibytes under `/large`.
fn nginx_config(port: u16) -> String {
    let repeat = |name: &str, times: usize| name.repeat(times);
    format!(
        "daemon off; pid nginx.pid; error_log stderr crit; worker_rlimit_nofile 4096;\n\
         events {{ worker_connections 2048; }}\nhttp {{ access_log off; keepalive_requests 100000000; \
         client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n\
         server {{ listen 127.0.0.1:{port}; default_type application/json;\n\
         location / {{ return 201 '{{}}'; }}\n\
         location /large {{ set $k '{}'; set $m '{}'; set $l '{}'; return 200 $l; }} }} }}\n",
        repeat("x", 1024),
        repeat("$k", 256),
        repeat("$m", 32),
    )
}

/// What honest clients got in some time.
struct Honest {
    per_second: f64,
    /// Processor time of the gateway for each answer, with all that it did for others meanwhile.
    gateway_us: f64,
    /// The longest time until a connection was made and had its first answer.
    slowest_begin: Duration,
}

/// Honest requests in this time, on connections that are kept. Each one must be answered.
fn honest_requests(gateway: &Gateway, during: Duration, round: &str) -> Honest {
    let (done, slowest_begin) = (AtomicU32::new(0), AtomicU64::new(0));
    let (began, used) = (Instant::now(), gateway.processor_time());
    thread::scope(|scope| {
        for client in 0..HONEST {
            let (done, slowest_begin) = (&done, &slowest_begin);
            scope.spawn(move || {
                let mut socket = TcpStream::connect(gateway.address).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                socket.set_nodelay(true).unwrap();
                for number in 0.. {
                    if began.elapsed() > during {
                        return;
                    }
                    let ask = format!(
                        "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {round}-{client}-{number}\r\nContent-Length: 2\r\n\r\n{{}}"
                    );
                    socket.write_all(ask.as_bytes()).unwrap();
                    read_created(&mut socket);
                    if number == 0 {
                        let after = u64::try_from(began.elapsed().as_millis()).unwrap();
                        slowest_begin.fetch_max(after, Ordering::Relaxed);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (done, elapsed) = (f64::from(done.into_inner()), began.elapsed().as_secs_f64());
    let used = gateway.processor_time().saturating_sub(used);
    let slowest_begin = Duration::from_millis(slowest_begin.into_inner());
    Honest { per_second: done / elapsed, gateway_us: used.as_secs_f64() * 1e6 / done, slowest_begin }
}

/// Reads an answer 201 whose body is `{}`.
fn read_created(socket: &mut TcpStream) {
    let (mut answer, mut read) = ([0; 4096], 0);
    while !answer[..read].ends_with(b"\r\n\r\n{}") {
        let more = socket.read(&mut answer[read..]).unwrap();
        read += more;
        let said = String::from_utf8_lossy(&answer[..read]);
        assert!(more > 0 && said.starts_with("HTTP/1.1 201"), "{said}");
    }
}

#[test]
fn honest_clients_go_on_beside_silent_slow_and_unreading_ones() {
    let home = Home::new();
    let port = free_port();
    let folder = home.folder.path();
    std::fs::write(folder.join("nginx.conf"), nginx_config(port)).unwrap();
    let prefix = format!("{}/", folder.display());
    let command = ["nginx", "-p", &prefix, "-c", "nginx.conf", "-e", "stderr"];
    let Some(_service) = server(folder, &command, port) else { return };
    // The deadlines of the documentation, or shorter ones that a short test sees.
    let flags: &[&str] = if is_long() { &[] } else { &["--body-grace", "2s", "--write-timeout", "2s"] };
    let gateway = home.start_with(&format!("http://127.0.0.1:{port}"), flags);
    let required = Attack::required(connections_max(&gateway));
    let silent = f64::from(u32::try_from(required.silent).unwrap());
    let (rounds, during) = if is_long() { (5, Duration::from_secs(5)) } else { (3, Duration::from_secs(1)) };
    honest_requests(&gateway, during, "warm");
    let (mut throughputs, mut costs) = (Vec::new(), Vec::new());
    let attack = |round: usize| {
        let alone = honest_requests(&gateway, during, &format!("alone{round}"));
        let attackers = Attackers::start(&gateway);
        // Connected ones may still be in the queue of the operating system, which the gateway does not count.
        let connections = eventually("the attack is under way", || {
            let connections = gateway.metric("onceward_connections");
            (attackers.connected().has(required) && connections >= silent).then_some(connections)
        });
        // The service makes its large answers first, which is no part of the attack on the gateway.
        honest_requests(&gateway, during / 5, &format!("begun{round}"));
        let beside = honest_requests(&gateway, during, &format!("beside{round}"));
        let connected = attackers.connected();
        assert!(connected.has(required), "{connected:?} are left of the attack, instead of {required:?}");
        println!(
            "honest requests: {:.0}/s alone with {:.0} µs of the gateway for each; {:.0}/s with {:.0} µs beside \
             {connections} connections, the last client begins after {:?}; {connected:?}",
            alone.per_second, alone.gateway_us, beside.per_second, beside.gateway_us, beside.slowest_begin
        );
        throughputs.push(beside.per_second / alone.per_second);
        costs.push(alone.gateway_us / beside.gateway_us);
        attackers
    };
    let attackers = (0..rounds).map(attack).last().unwrap();
    // The rounds are shorter than the deadlines, so that the last attack goes on until each of them has passed.
    let (refused, unread) =
        eventually("slow bodies are answered with 408, and unread answers given up", || {
            let unread = gateway.metric("onceward_connections_closed_total{reason=\"slow_reader\"}");
            Some((attackers.refused(), unread)).filter(|(refused, unread)| *refused > 0 && *unread > 0.0)
        });
    println!("{refused} slow bodies were answered with 408, {unread} connections closed because nobody read");
    drop(attackers);
    let (throughput, cost) = (median(throughputs), median(costs));
    println!("beside the attack: {throughput:.2} of the rate, {cost:.2} by the gateway's processor time");
    // The processor time does not depend on what else the machine does, the rate does. The numbers of the documentation are
    // those of an optimised gateway and of long rounds: a step of its own in `./check --long`.
    let at_least = if is_long() { 0.9 } else { 0.5 };
    assert!(cost >= at_least, "the gateway does {cost:.2} of the honest work with the same processor time");
    assert!(!is_long() || throughput >= at_least, "honest clients keep {throughput:.2} of their rate");
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Connects this number of sockets at once, and says how many were connected.
const BURST: &str = r#"
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
sockets = []
for _ in range(int(sys.argv[2])):
    one = socket.socket()
    one.settimeout(10)
    try: one.connect(("127.0.0.1", int(sys.argv[1])))
    except OSError: break
    sockets.append(one)
print(len(sockets))
"#;

/// Nobody accepts for a moment, as when all processors are busy. A client that found the queue full would be silent for a
/// second.
#[test]
fn a_burst_of_connections_fits_in_the_queue() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&service.url());
    gateway.signal("-STOP");
    let port = gateway.address.port().to_string();
    let burst = Command::new("python3").args(["-c", BURST, &port, "2000"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&burst.stdout), "2000\n", "{burst:?}");
    gateway.signal("-CONT");
    assert_eq!(gateway.charge("k", "{}").status, 201);
}
