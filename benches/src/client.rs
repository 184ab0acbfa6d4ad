//! The client over bare reqwest, on loopback: 64 callers, a small JSON document each way.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onceward_http::client::Client;

use crate::table::{Table, median};

const CALLERS: usize = 64;
/// Many short rounds: on a machine with other work, the three sides of one round see the same of it.
const ROUNDS: usize = 61;
const ROUND: Duration = Duration::from_millis(300);
const BODY: &[u8] = br#"{"account":"acc_1","amount":1200,"currency":"EUR"}"#;
const ANSWER: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n\
    {\"id\":\"ch_1\",\"amount\":1200,\"currency\":\"EUR\",\"status\":\"paid\"}";

pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let url = serve();
    let folder = tempfile::tempdir().unwrap();
    let table = Table::start("client over bare reqwest, loopback, 64 callers");
    let bare = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let plain = runtime.block_on(async { Client::builder().build().unwrap() });
    let journaled = runtime.block_on(async {
        let address = format!("embedded:{}", folder.path().join("journal").display());
        let client = Client::builder().journal(address).build().unwrap();
        client.resume().await.unwrap();
        client
    });
    let (mut bares, mut plains, mut journaleds, mut processor) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        let (bare, plain, journaled) = runtime.block_on(async {
            let (bare, to) = (bare.clone(), url.clone());
            let bare = speed(move || {
                let request = bare.post(&to).header("content-type", "application/json");
                let request = request.body(Bytes::from_static(BODY));
                async move { drop(request.send().await.unwrap().bytes().await.unwrap()) }
            });
            (bare.await, client_speed(&plain, &url).await, client_speed(&journaled, &url).await)
        });
        // The first round opens the connections.
        if round > 0 {
            bares.push(bare.per_second);
            plains.push(plain.per_second / bare.per_second);
            journaleds.push(journaled.per_second / bare.per_second);
            processor.push(bare.micros_each / plain.micros_each);
        }
    }
    let (bare, plain, journaled) = (median(bares), median(plains), median(journaleds));
    table.row("bare reqwest", &format!("{bare:.0}/s"), "", None);
    table.row("client / bare reqwest", &format!("{plain:.3}"), "> 0.95", Some(plain > 0.95));
    let processor = median(processor);
    let what = "the same by processor time, whatever else the machine does";
    table.row(what, &format!("{processor:.3}"), "> 0.95", Some(processor > 0.95));
    table.row(
        "client with a synced journal / bare reqwest",
        &format!("{journaled:.3}"),
        ">= 0.50",
        Some(journaled >= 0.5),
    );
}

async fn client_speed(client: &Client, url: &str) -> Speed {
    let (client, url) = (client.clone(), url.to_owned());
    let call = move || {
        let request = client.post(&url).header("content-type", "application/json");
        let request = request.body(Bytes::from_static(BODY));
        async move { drop(request.send().await.unwrap()) }
    };
    speed(call).await
}

/// How fast calls are made, and what they cost.
struct Speed {
    per_second: f64,
    /// Processor time of one call, server included.
    micros_each: f64,
}

/// 64 callers, for one round.
async fn speed<F>(call: impl Fn() -> F + Clone + Send + 'static) -> Speed
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (start, before) = (Instant::now(), processor_micros());
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (call, done, stop) = (call.clone(), done.clone(), stop.clone());
        callers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                call().await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(ROUND).await;
    stop.store(true, Ordering::Relaxed);
    callers.join_all().await;
    let calls = done.load(Ordering::Relaxed) as f64;
    let micros_each = (processor_micros() - before) / calls;
    Speed { per_second: calls / start.elapsed().as_secs_f64(), micros_each }
}

/// The processor time of this process so far.
fn processor_micros() -> f64 {
    const MICROS_PER_TICK: f64 = 10_000.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_the_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = behind_the_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() * MICROS_PER_TICK
}

/// A server that costs as little as possible: a thread per connection, one answer for everything.
fn serve() -> String {
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
