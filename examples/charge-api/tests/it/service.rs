//! The service as a process of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

pub struct Service {
    process: Child,
    pub address: SocketAddr,
}

impl Service {
    /// Starts it and waits until it listens.
    pub fn start(database: &str, listen: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_charge-api"))
            .arg(database)
            .env("LISTEN", listen)
            .env("LEASE_MS", "500")
            .env("ONCEWARD_SECRET", "a secret that is only for this test")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("charge-api: listening on http://").expect("it listens");
        Self { process, address: address.parse().unwrap() }
    }

    pub fn post(&self, key: &str, body: &Value) -> (u16, String) {
        post(self.address, key, body).unwrap()
    }

    pub fn charges(&self) -> Value {
        serde_json::from_str(&call(self.address, "GET", "", "").unwrap().1).unwrap()
    }
}

/// SIGKILL: nothing is finished or flushed.
impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Asks for a charge. An error if there was no whole answer.
pub fn post(address: SocketAddr, key: &str, body: &Value) -> io::Result<(u16, String)> {
    let body = body.to_string();
    let fields = format!(
        "Idempotency-Key: \"{key}\"\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    call(address, "POST", &fields, &body)
}

fn call(address: SocketAddr, method: &str, fields: &str, body: &str) -> io::Result<(u16, String)> {
    let mut socket = TcpStream::connect(address)?;
    let head = format!("{method} /charges HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{fields}\r\n");
    socket.write_all(format!("{head}{body}").as_bytes())?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut off");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    if length.is_some_and(|length: usize| body.len() < length) {
        return Err(cut_off());
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut_off)?;
    Ok((status, body.to_owned()))
}
