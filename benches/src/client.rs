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
    {\"id\":\"ch_1\",\"amount\":1200,\"currency\":\"EUR\",\"status\":\"paid\"}  ";

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
    let (mut bares, mut plains, mut journaleds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (bare, plain, journaled) = runtime.block_on(async {
            let (bare, to) = (bare.clone(), url.clone());
            let bare = per_second(move || {
                let request = bare.post(&to).header("content-type", "application/json");
                let request = request.body(Bytes::from_static(BODY));
                async move { drop(request.send().await.unwrap().bytes().await.unwrap()) }
            });
            (bare.await, client_per_second(&plain, &url).await, client_per_second(&journaled, &url).await)
        });
        // The first round opens the connections.
        if round > 0 {
            eprintln!(
                "  round {round}: bare {bare:.0}/s, client {plain:.0}/s, with a journal {journaled:.0}/s"
            );
            bares.push(bare);
            plains.push(plain / bare);
            journaleds.push(journaled / bare);
        }
    }
    let (bare, plain, journaled) = (median(bares), median(plains), median(journaleds));
    table.row("bare reqwest", &format!("{bare:.0}/s"), "", None);
    table.row("client / bare reqwest", &format!("{plain:.3}"), "> 0.95", Some(plain > 0.95));
    table.row(
        "client with a synced journal / bare reqwest",
        &format!("{journaled:.3}"),
        ">= 0.50",
        Some(journaled >= 0.5),
    );
}

async fn client_per_second(client: &Client, url: &str) -> f64 {
    let (client, url) = (client.clone(), url.to_owned());
    let call = move || {
        let request = client.post(&url).header("content-type", "application/json");
        let request = request.body(Bytes::from_static(BODY));
        async move { drop(request.send().await.unwrap()) }
    };
    per_second(call).await
}

/// Calls of 64 callers in a second.
async fn per_second<F>(call: impl Fn() -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let start = Instant::now();
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
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
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
