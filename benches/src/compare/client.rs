//! The client over bare reqwest, on loopback: 64 callers, a small JSON document each way.
//!
//! The bare side is what a careful caller writes by hand: the same fields and the same body on the wire, a
//! key of its own for each request, the same time-out, the answer read to its end. It makes its keys by
//! counting, which costs less than the client's randomness.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onceward_client::{Client, RetryConfig};
use onceward_http::headers::{IDEMPOTENCY_KEY, ONCEWARD_TRY};

use crate::load::{callers, runtime};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Side, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

/// Callers at the same time.
pub const CALLERS: usize = 64;
/// Many short rounds: on a machine with other work, the sides of one round see the same of it.
const ROUNDS_PER_ROUND: usize = 7;
const ROUND_PART: u32 = 7;
const BODY: &[u8] = br#"{"account":"acc_1","amount":1200,"currency":"EUR"}"#;
const ANSWER: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n\
    {\"id\":\"ch_1\",\"amount\":1200,\"currency\":\"EUR\",\"status\":\"paid\"}";

/// Measures calls per second of all three, and what the first two cost by processor time.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let (runtime, url) = (runtime(), serve());
    let folder = tempfile::tempdir().unwrap();
    let bare = bare();
    let plain = runtime.block_on(async { Client::builder().build().unwrap() });
    let journaled = runtime.block_on(journaled(folder.path()));
    let length = scale.round / ROUND_PART;
    let (mut plain_micros, mut bare_micros) = (Vec::new(), Vec::new());
    let turns = || Turns::new(ROUNDS_PER_ROUND * scale.rounds, Unit::PerSecond).after_warm_up();
    let call_bare = {
        let url = url.clone();
        move |_| call_bare(&bare, &url)
    };
    let by_hand = || {
        let call = call_bare.clone();
        runtime.block_on(async { callers(CALLERS, tokio::time::sleep(length), call).await })
    };
    let [plain, bare] = turns().take([
        ("client", &mut |_| {
            let (turn, micros) = costing(|| runtime.block_on(through(&plain, &url, length)));
            plain_micros.push(micros);
            turn
        }),
        ("bare reqwest", &mut |_| {
            let (turn, micros) = costing(by_hand);
            bare_micros.push(micros);
            turn
        }),
    ]);
    // Apart from the first two: what a journal has left to do must not fall into their turns.
    let [journaled, beside] = turns().take([
        ("with journal", &mut |_| {
            let turn = runtime.block_on(through(&journaled, &url, length));
            runtime.block_on(journaled.recorded());
            turn
        }),
        ("bare reqwest", &mut |_| by_hand()),
    ]);
    // The first round warms up. Calls per second of processor time, so that more is better here too.
    let by_processor =
        |name, micros: &[f64]| Side::new(name, micros[1..].iter().map(|each| 1e6 / each).collect());
    let rows = vec![
        Row::ratio("client / bare reqwest, 64 callers", Unit::PerSecond, &plain, &bare)
            .goal(Goal::AtLeast(0.95)),
        Row::ratio(
            "the same by processor time, whatever else the machine does",
            Unit::PerSecond,
            &by_processor("client", &plain_micros),
            &by_processor("bare reqwest", &bare_micros),
        )
        .goal(Goal::AtLeast(0.95)),
        Row::ratio("client with a synced journal / bare reqwest", Unit::PerSecond, &journaled, &beside)
            .goal(Goal::AtLeast(0.58)),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

async fn through(client: &Client, url: &str, length: Duration) -> Turn {
    let (client, url) = (client.clone(), url.to_owned());
    callers(CALLERS, tokio::time::sleep(length), move |_| call(&client, &url)).await
}

/// A client with a journal in this folder.
pub async fn journaled(folder: &Path) -> Client {
    let address = format!("embedded:{}", folder.join("journal").display());
    let client = Client::builder().with_journal(address).build().unwrap();
    client.resume().await.unwrap();
    client
}

/// One call of the client.
pub fn call(client: &Client, url: &str) -> impl Future<Output = ()> + Send + use<> {
    let request = client.post(url).header("content-type", "application/json");
    let request = request.body(Bytes::from_static(BODY));
    async move { drop(request.send().await.unwrap()) }
}

/// The client that one would use instead, with the same time-out.
pub fn bare() -> reqwest::Client {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    client.timeout(RetryConfig::default().try_at_most).build().unwrap()
}

/// The same call by hand.
pub fn call_bare(client: &reqwest::Client, url: &str) -> impl Future<Output = ()> + Send + use<> {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let key = format!("\"00000000-0000-4000-8000-{:012x}\"", KEYS.fetch_add(1, Ordering::Relaxed));
    let request = client.post(url).header("content-type", "application/json");
    let request = request.header(IDEMPOTENCY_KEY, key).header(ONCEWARD_TRY, "1");
    let request = request.body(Bytes::from_static(BODY));
    async move { drop(request.send().await.unwrap().bytes().await.unwrap()) }
}

/// What a turn gave, and the processor time of one of its calls in microseconds, the server's included.
fn costing(turn: impl FnOnce() -> Turn) -> (Turn, f64) {
    let (start, before) = (std::time::Instant::now(), processor_micros());
    let turn = turn();
    let calls = turn.value() * start.elapsed().as_secs_f64();
    let micros = (processor_micros() - before) / calls;
    (turn, micros)
}

/// The processor time of this process so far. From the scheduler's own books, which count nanoseconds: the
/// usual ones count hundredths of a second, and a turn has only a few dozen of those.
fn processor_micros() -> f64 {
    const NANOS_PER_MICRO: f64 = 1_000.0;
    // The threads of both sides live as long as the process, so none takes its time with it.
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let books = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        books.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / NANOS_PER_MICRO
}

/// A server that costs as little as possible: a thread per connection, one answer for everything.
pub fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/charges", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            socket.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(length @ 1..) = socket.read(&mut buffer) {
                    read.extend_from_slice(&buffer[..length]);
                    if read.ends_with(BODY) {
                        read.clear();
                        if socket.write_all(ANSWER).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    url
}
