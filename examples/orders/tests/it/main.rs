//! Both services with real servers: every order is reserved once, whichever process is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../../crates/onceward-stores/tests/servers/mod.rs"]
mod servers;

use servers::{Nats, Postgres};

/// A service; dropping it is SIGKILL.
struct Service {
    child: Child,
    address: String,
}

impl Service {
    fn start(name: &str, database: &str, nats: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_orders"))
            .args([name, database, nats, "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens").to_owned();
        Self { child, address }
    }

    /// Sends a request with these fields; nothing if the service is not there.
    fn send(&self, line: &str, fields: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        (!answer.is_empty()).then_some(answer)
    }

    /// Places an order under a key.
    fn order(&self, key: usize, item: &str) -> Option<String> {
        let fields = format!("Idempotency-Key: {key}\r\nContent-Type: application/json\r\n");
        self.send("POST /orders", &fields, &format!(r#"{{"item":"{item}","quantity":1}}"#))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until_reserved(stock: &Service, item: &str, count: usize) {
    let start = Instant::now();
    loop {
        let answer = stock.send(&format!("GET /stock/{item}"), "", "").unwrap_or_default();
        if answer.ends_with(&format!("{count} reserved\n")) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{item}: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_order_is_reserved_once_whichever_process_is_killed() {
    let (Some(server), Some(nats)) = (Postgres::start(), Nats::start()) else { return };
    let (at_orders, at_stock) = (server.database("orders"), server.database("stock"));
    let mut orders = Service::start("orders", &at_orders, &nats.url());
    let mut stock = Service::start("stock", &at_stock, &nats.url());
    for key in 0..60 {
        // Twice: the second one is a retry.
        let item = ["tea", "coffee"][key % 2];
        for _ in 0..2 {
            while !orders.order(key, item).is_some_and(|answer| answer.starts_with("HTTP/1.1 201")) {}
        }
        if key == 20 {
            drop(orders);
            orders = Service::start("orders", &at_orders, &nats.url());
        }
        if key == 40 {
            drop(stock);
            stock = Service::start("stock", &at_stock, &nats.url());
        }
    }
    until_reserved(&stock, "tea", 30);
    until_reserved(&stock, "coffee", 30);
    // Another body under the same key, and an item that does not exist.
    assert!(orders.order(0, "milk").unwrap().starts_with("HTTP/1.1 409"));
    assert!(orders.order(1000, "gold").unwrap().starts_with("HTTP/1.1 201"));
    let dead = "SELECT count(*) FROM onceward_dead_letters WHERE error = 'there is no item `gold`'";
    let start = Instant::now();
    while server.sql("stock", dead) != "1" {
        assert!(start.elapsed() < Duration::from_secs(60), "it is no dead letter");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.sql("orders", "SELECT count(*) FROM orders"), "61");
}
