//! The service as a process: duplicates at the same time and after a SIGKILL make one row and get one response.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

struct Service {
    process: Child,
    address: SocketAddr,
}

impl Service {
    /// Starts it on a free port and waits until it listens.
    fn start(database: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_charge-api"))
            .arg(database)
            .env("LISTEN", "127.0.0.1:0")
            .env("ONCEWARD_SECRET", "a secret that is only for this test")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("charge-api: listening on http://").expect("it listens");
        Self { process, address: address.parse().unwrap() }
    }

    fn post(&self, key: &str, body: &Value) -> (u16, String) {
        let body = body.to_string();
        let fields = format!(
            "Idempotency-Key: \"{key}\"\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.call("POST", &fields, &body)
    }

    fn charges(&self) -> Value {
        serde_json::from_str(&self.call("GET", "", "").1).unwrap()
    }

    fn call(&self, method: &str, fields: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        let head = format!("{method} /charges HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n");
        socket.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// SIGKILL: nothing is finished or flushed.
impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn duplicates_charge_once_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("charges.db").display());
    let charge = json!({"account": "a", "amount": 12});
    let answer = r#"{"id":1,"account":"a","amount":12}"#;
    let rows = json!([{"id": 1, "account": "a", "amount": 12}]);

    let service = Service::start(&database);
    let answers: Vec<_> = thread::scope(|threads| {
        let send = || service.post("order-81", &charge);
        let calls = [(); 3].map(|()| threads.spawn(send));
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(answers, vec![(201, answer.to_owned()); 3]);
    assert_eq!(service.charges(), rows);
    drop(service);

    let service = Service::start(&database);
    assert_eq!(service.post("order-81", &charge), answers[0]);
    assert_eq!(service.charges(), rows);

    // The key with another body is refused. The body with another key is another charge.
    assert_eq!(service.post("order-81", &json!({"account": "a", "amount": 13})).0, 422);
    assert_eq!(service.post("order-82", &charge).0, 201);
    assert_eq!(service.charges().as_array().unwrap().len(), 2);
}

#[test]
fn a_refused_charge_writes_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(&format!("sqlite:{}", folder.path().join("charges.db").display()));
    assert_eq!(service.post("order-81", &json!({"account": "a", "amount": 0})).0, 400);
    assert_eq!(service.charges(), json!([]));
}
