//! Compares events that the gateway stores first and then delivers with plain guarded requests through it: the same
//! upstream, the embedded store, 64 connections that are kept. The load is made here, because each event has a signature of
//! its own; plain requests have one too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onceward_http::webhook::Signer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::gateway::GatewayServers;
use crate::load::{callers, runtime};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

const CONNECTIONS: usize = 64;
const SECRET: &str = "whsec_c2VjcmV0LW9mLXRoZS1zZW5kZXItMDE=";
/// Deliveries are signed with it.
const OWN_SECRET: &str = "whsec_c2VjcmV0LW9mLXRoZS1nYXRld2F5LTE=";
const CONFIG: &str = "[[route]]\npath = \"/hooks\"\npreset = \"webhook\"\nverify = \"standard-webhooks\"\n\
                      secrets = [\"env:HOOK_SECRET\"]\naccept = \"store-first\"\n\
                      sign_with = \"env:OWN_SECRET\"\n";
const BODY: &str =
    "{\"id\":\"evt_81\",\"type\":\"charge.succeeded\",\"data\":{\"object\":{\"id\":\"ch_81\"}}}";
/// All that was acknowledged is delivered by then, or something is stuck.
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);

/// Measures events that are acknowledged and delivered, next to requests that are run.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let secrets = [("HOOK_SECRET", SECRET), ("OWN_SECRET", OWN_SECRET)];
    let servers = GatewayServers::start_with(CONFIG, &secrets)?;
    let runtime = runtime();
    let load = Arc::new(runtime.block_on(Load::connect(servers.gateway_port)));
    let [events, plain] = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
        ("delivered", &mut |_| runtime.block_on(delivered(&load, servers.admin_port, scale.round))),
        ("guarded requests", &mut |_| runtime.block_on(load.rate("/charges", 201, scale.round))),
    ]);
    let acknowledged =
        events.latency.as_ref().map(|latency| latency.at(0.99)).into_iter().collect::<Vec<f64>>();
    let rows = vec![
        Row::ratio(
            "webhooks stored first and delivered / plain guarded requests, embedded store, 64 connections",
            Unit::PerSecond,
            &events,
            &plain,
        )
        .goal(Goal::AtLeast(0.6)),
        Row::alone(
            "p99 of the 202",
            Unit::Microseconds,
            &crate::report::Side::new("acknowledgement", acknowledged),
        ),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// Events per second, from the first one sent to the last one delivered.
async fn delivered(load: &Arc<Load>, admin: u16, length: Duration) -> Turn {
    let (before, start) = (count(admin).await, Instant::now());
    let sent_before = load.answered.load(Ordering::Relaxed);
    let turn = load.rate("/hooks", 202, length).await;
    let sent = load.answered.load(Ordering::Relaxed) - sent_before;
    while count(admin).await < before + sent {
        assert!(start.elapsed() < DELIVERED_WITHIN, "events are not delivered");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Turn::with_latency(sent as f64 / start.elapsed().as_secs_f64(), turn.into_latency())
}

/// How many events the gateway has delivered.
async fn count(admin: u16) -> u64 {
    let text = reqwest::get(format!("http://127.0.0.1:{admin}/metrics")).await.unwrap().text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("onceward_webhook_events_delivered_total "));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

/// Connections that are kept, one for each caller.
struct Load {
    connections: Vec<Mutex<TcpStream>>,
    signer: Signer,
    answered: AtomicU64,
    run: u64,
}

impl Load {
    async fn connect(port: u16) -> Self {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            stream.set_nodelay(true).unwrap();
            connections.push(Mutex::new(stream));
        }
        let run = u64::from(std::process::id());
        Self { connections, signer: Signer::new(SECRET).unwrap(), answered: AtomicU64::new(0), run }
    }

    async fn rate(self: &Arc<Self>, path: &'static str, status: u16, length: Duration) -> Turn {
        let load = self.clone();
        let call = move |caller| {
            let load = load.clone();
            async move { load.send(caller, path, status).await }
        };
        callers(CONNECTIONS, tokio::time::sleep(length), call).await
    }

    async fn send(&self, caller: usize, path: &str, status: u16) {
        let number = self.answered.fetch_add(1, Ordering::Relaxed);
        let id = format!("evt_{}_{number}", self.run);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let signature = self.signer.sign(&id, now, BODY.as_bytes());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Idempotency-Key: {id}\r\nwebhook-id: {id}\r\nwebhook-timestamp: {now}\r\n\
             webhook-signature: {signature}\r\n\r\n{BODY}",
            BODY.len()
        );
        let mut stream = self.connections[caller].lock().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::with_capacity(1024);
        loop {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "the gateway has closed a connection");
            if is_complete(&answer) {
                break;
            }
        }
        let begin = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(begin.as_bytes()), "{}", String::from_utf8_lossy(&answer));
    }
}

/// Whether an answer with a length is all there.
fn is_complete(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    answer.len() >= head + 4 + length
}
