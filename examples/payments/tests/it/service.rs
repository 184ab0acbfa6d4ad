//! Starts the service as a process, and talks to it with a minimal HTTP client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Long enough for anything but a hang.
const CALL_MAX: Duration = Duration::from_secs(40);

pub struct Service {
    process: Child,
    pub address: SocketAddr,
}

impl Service {
    /// Starts the service on this port (0 for any), with a provider that takes `provider` each way, and waits until
    /// it listens. `None` if it ended instead, because its database is away.
    async fn try_start(url: &str, port: u16, provider: Duration) -> Option<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_payments"))
            .env("DATABASE_URL", url)
            .env("LISTEN", format!("127.0.0.1:{port}"))
            // A short lease, so that the key of a killed owner is free again soon.
            .env("LEASE_MS", "400")
            .env("PROVIDER_BOOK", book(url))
            .env("PROVIDER_MS", provider.as_millis().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the service starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).await.ok()?;
        let address = line.trim().strip_prefix("payments: listening on http://")?.parse().ok()?;
        Some(Self { process, address })
    }

    pub async fn start(url: &str, port: u16) -> Self {
        Self::start_with(url, port, Duration::ZERO).await
    }

    pub async fn start_with(url: &str, port: u16, provider: Duration) -> Self {
        for _ in 0..100 {
            if let Some(service) = Self::try_start(url, port, provider).await {
                return service;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the service does not come up");
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        self.process.kill().await.expect("it can be killed");
    }
}

#[cfg(unix)]
impl Service {
    /// SIGTERM; waits for its end, and says whether that was an orderly one.
    pub async fn terminate(mut self) -> bool {
        let process = self.process.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status().await.expect("there is kill");
        assert!(sent.success());
        let ended = tokio::time::timeout(CALL_MAX, self.process.wait()).await;
        ended.expect("it ends when it is told to").expect("it can be waited for").success()
    }
}

/// The file in which the provider of this database's services records transfers.
pub fn book(url: &str) -> PathBuf {
    static BOOKS: LazyLock<TempDir> =
        LazyLock::new(|| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder"));
    BOOKS.path().join(url.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"))
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

pub async fn post(address: SocketAddr, path: &str, key: &str, body: &str) -> Option<Answer> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nIdempotency-Key: \"{key}\"\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    call(address, &request).await
}

pub async fn get(address: SocketAddr, path: &str) -> Option<Answer> {
    call(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")).await
}

async fn call(address: SocketAddr, request: &str) -> Option<Answer> {
    let answer = tokio::time::timeout(CALL_MAX, async {
        let mut socket = TcpStream::connect(address).await.ok()?;
        socket.write_all(request.as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).await.ok()?;
        parse(&String::from_utf8(bytes).ok()?)
    });
    answer.await.expect("the service answers or breaks the line, but does not hang")
}

/// A whole answer with the length that it says; anything less is a broken connection.
fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    (length == Some(body.len())).then(|| Answer { status, body: body.to_owned() })
}
