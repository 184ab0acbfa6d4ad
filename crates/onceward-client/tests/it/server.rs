//! A test server that honours idempotency keys and injects faults, try by try.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is answered.
    None,
    /// The request is read, and the connection closed before the effect.
    DropBeforeEffect,
    /// The effect happens, and no byte of the answer leaves.
    DropAfterEffect,
    /// The effect happens, and half of the answer leaves.
    DropMidAnswer,
    /// The effect happens while the client has long given up on this try.
    Delay(Duration),
    /// The first one is still running.
    InProgress,
    /// The key is not honoured any more, and there is no effect.
    KeyExpired,
    /// This status, and no effect.
    Status(u16),
    /// This status with these header fields, and no effect.
    StatusWith(u16, &'static str),
    /// The problem `dead`: the server has given it up.
    Dead,
    /// The problem `response-not-stored`, for an answer with the status 201.
    NotStored,
    /// This status, although the effect happens.
    StatusAfterEffect(u16),
    /// Too many requests, with this `Retry-After`.
    Busy(&'static str),
    /// The effect happens, and what comes back is no HTTP.
    Garbage,
}

/// What the server knows of one intent, which is what the body says.
#[derive(Clone, Debug, Default)]
pub struct Intent {
    pub keys: BTreeSet<String>,
    pub bodies: BTreeSet<String>,
    /// The tries, by the numbers they came with.
    pub numbers: Vec<u32>,
    pub effects: u32,
    pub answer: String,
}

#[derive(Default)]
pub struct ServerState {
    pub intents: HashMap<String, Intent>,
    /// What a key gets, once its effect has happened.
    receipts: HashMap<String, String>,
    pub requests: u64,
}

pub struct Server {
    pub url: String,
    state: Arc<Mutex<ServerState>>,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Came {
    pub intent: String,
    /// How many tries of this intent came before.
    pub before: usize,
    pub fields: HashMap<String, String>,
}

type Script = Arc<dyn Fn(&Came) -> Fault + Send + Sync>;

/// How long the server says it honours a key.
const HONOURED: &str = "Idempotency-Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n";

impl Server {
    /// Starts one on a free port of this machine.
    pub async fn start(script: impl Fn(&Came) -> Fault + Send + Sync + 'static) -> Self {
        Self::start_dropping(script, u64::MAX).await
    }

    /// Starts one that also closes every `every`-th connection before it has read anything.
    pub async fn start_dropping(script: impl Fn(&Came) -> Fault + Send + Sync + 'static, every: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, script): (_, Script) = (Arc::<Mutex<ServerState>>::default(), Arc::new(script));
        let shared = state.clone();
        tokio::spawn(async move {
            for number in 1_u64.. {
                let Ok((socket, _)) = listener.accept().await else { continue };
                if number.is_multiple_of(every) {
                    continue;
                }
                let (state, script) = (shared.clone(), script.clone());
                tokio::spawn(async move { serve(socket, state, script).await });
            }
        });
        Self { url: format!("http://{address}/charges"), state }
    }

    pub fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap()
    }

    pub fn intent(&self, name: &str) -> Intent {
        self.state().intents.get(name).cloned().unwrap_or_default()
    }
}

async fn serve(mut socket: TcpStream, state: Arc<Mutex<ServerState>>, script: Script) -> Option<()> {
    let mut buffer = Vec::new();
    while let Some((head, body)) = read(&mut socket, &mut buffer).await {
        let fields: HashMap<String, String> = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let key = fields.get("idempotency-key").cloned().unwrap_or_default();
        let name = serde_json::from_str::<serde_json::Value>(&body)
            .ok()
            .and_then(|body| body["intent"].as_str().map(str::to_owned))
            .unwrap_or_default();
        let came = {
            let mut state = state.lock().unwrap();
            state.requests += 1;
            let intent = state.intents.entry(name.clone()).or_default();
            let before = intent.numbers.len();
            intent.keys.insert(key.clone());
            intent.bodies.insert(body);
            intent.numbers.push(fields.get("onceward-try").map_or(0, |number| number.parse().unwrap()));
            Came { intent: name.clone(), before, fields }
        };
        let fault = script(&came);
        let run = || effect(&state, &name, &key);
        let reply = match fault {
            Fault::None => run(),
            Fault::DropBeforeEffect => return None,
            Fault::DropAfterEffect => {
                run();
                return None;
            }
            Fault::DropMidAnswer => {
                let answer = run();
                socket.write_all(&answer.as_bytes()[..answer.len() - 5]).await.ok()?;
                return None;
            }
            Fault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                run()
            }
            Fault::InProgress => problem("409 Conflict", "in-progress", true),
            Fault::KeyExpired => problem("410 Gone", "key-expired", false),
            Fault::Status(status) => plain(status, "", "no"),
            Fault::StatusWith(status, fields) => plain(status, fields, "no"),
            Fault::Dead => problem("409 Conflict", "dead", false),
            Fault::NotStored => {
                problem("409 Conflict", "response-not-stored\",\"original_status\":201,\"x\":\"", false)
            }
            Fault::StatusAfterEffect(status) => {
                run();
                plain(status, "", "no")
            }
            Fault::Busy(after) => plain(429, &format!("Retry-After: {after}\r\n"), "busy"),
            Fault::Garbage => {
                run();
                socket.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").await.ok()?;
                return None;
            }
        };
        socket.write_all(reply.as_bytes()).await.ok()?;
    }
    None
}

/// Runs the effect once per key: later tries get the same answer.
fn effect(state: &Mutex<ServerState>, name: &str, key: &str) -> String {
    let mut state = state.lock().unwrap();
    if let Some(answer) = state.receipts.get(key).filter(|_| !key.is_empty()) {
        return plain(201, &format!("Idempotent-Replayed: true\r\n{HONOURED}"), answer);
    }
    let number = state.receipts.len();
    let intent = state.intents.get_mut(name).unwrap();
    intent.effects += 1;
    let answer = format!("effect {number} of {name}");
    intent.answer.clone_from(&answer);
    state.receipts.insert(key.to_owned(), answer.clone());
    plain(201, HONOURED, &answer)
}

pub fn plain(status: u16, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} Scripted\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

pub fn problem(status: &str, name: &str, retryable: bool) -> String {
    let body = format!("{{\"type\":\"urn:onceward:problem:{name}\",\"retryable\":{retryable}}}");
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// The next request of a connection: its head and its body.
async fn read(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let length: usize = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
                })
                .map_or(0, |length| length.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let body = String::from_utf8(buffer[end + 4..end + 4 + length].to_vec()).unwrap();
                buffer.drain(..end + 4 + length);
                return Some((head, body));
            }
        }
        if socket.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Pseudorandom numbers from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub fn usual_or_long(usual: u64, long: u64) -> u64 {
    if std::env::var_os("ONCEWARD_LONG").is_some() { long } else { usual }
}
