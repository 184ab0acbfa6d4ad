//! Starts the processes of the demo, and makes the HTTP calls of its scenarios.

use std::process::Stdio;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::service::Charge;
use crate::http_call::{HttpAnswer, HttpCall};

/// A process must print its addresses within this time.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A short lease, so that the lease of the killed gateway ends soon.
const CONFIG: &str = "[defaults]\nlease = \"2s\"\n";

/// A payments service and a gateway in front of it. Dropping it ends both processes and removes their data.
pub struct DemoProcesses {
    folder: TempDir,
    service: Process,
    gateway: Process,
    /// The answer of the first request, which every replay is compared with.
    pub first: Option<HttpAnswer>,
}

struct Process {
    child: Child,
    /// Each `host:port` that it printed, in the order of the lines given to [`Process::start`].
    addresses: Vec<String>,
}

/// The ledger of the service.
#[derive(Deserialize)]
pub struct Ledger {
    pub charges: u64,
    pub ledger: Vec<Charge>,
}

impl DemoProcesses {
    pub async fn start() -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("onceward-demo-").tempdir();
        let folder = folder.map_err(|error| format!("cannot create a temporary folder: {error}"))?;
        let config = folder.path().join("onceward.toml");
        std::fs::write(&config, CONFIG).map_err(|error| format!("{}: {error}", config.display()))?;
        let service = Process::start(&["demo-service"], &["payments on "]).await?;
        let gateway = start_gateway(&folder, &service.addresses[0], "127.0.0.1:0", "127.0.0.1:0").await?;
        Ok(Self { folder, service, gateway, first: None })
    }

    pub fn service(&self) -> &str {
        &self.service.addresses[0]
    }

    pub fn gateway(&self) -> &str {
        &self.gateway.addresses[0]
    }

    pub fn admin(&self) -> &str {
        &self.gateway.addresses[1]
    }

    /// A payment through the gateway.
    pub fn pay(&self, tenant: &str, key: &str, amount: u64) -> HttpCall {
        HttpCall::new(Method::POST, self.gateway(), "/charges")
            .field("authorization", &format!("Bearer {tenant}"))
            .field("idempotency-key", &format!("\"{key}\""))
            .json(format!("{{\"amount\":{amount}}}"))
    }

    /// The number of charges that the service made.
    pub async fn charges(&self) -> Result<u64, String> {
        Ok(self.ledger().await?.charges)
    }

    pub async fn ledger(&self) -> Result<Ledger, String> {
        let answer = HttpCall::new(Method::GET, self.service(), "/ledger").send().await?;
        serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
    }

    /// Sets how long the service delays an answer after its charge.
    pub async fn delay(&self, delay: Duration) -> Result<HttpAnswer, String> {
        let path = format!("/delay/{}", delay.as_millis());
        HttpCall::new(Method::PUT, self.service(), &path).send().await
    }

    /// Kills the gateway with SIGKILL, without a chance to clean up.
    pub async fn kill_gateway(&mut self) -> Result<(), String> {
        self.gateway.child.kill().await.map_err(|error| format!("cannot kill the gateway: {error}"))
    }

    /// Starts the gateway again, with the same receipts and the same ports.
    pub async fn restart_gateway(&mut self) -> Result<(), String> {
        let (gateway, admin) = (self.gateway().to_owned(), self.admin().to_owned());
        self.gateway = start_gateway(&self.folder, self.service(), &gateway, &admin).await?;
        Ok(())
    }
}

async fn start_gateway(
    folder: &TempDir,
    service: &str,
    listen: &str,
    admin: &str,
) -> Result<Process, String> {
    let upstream = format!("http://{service}");
    let store = format!("embedded:{}", folder.path().join("receipts").display());
    let config = folder.path().join("onceward.toml");
    let config = config.to_str().ok_or("the path of the temporary folder is not UTF-8")?;
    let args = [
        "proxy",
        "--upstream",
        &upstream,
        "--listen",
        listen,
        "--admin",
        admin,
        "--store",
        &store,
        "--config",
        config,
    ];
    Process::start(&args, &["listening on ", "admin on "]).await
}

impl Process {
    /// Starts this binary, and waits until it has printed each of `lines` followed by an address.
    async fn start(args: &[&str], lines: &[&str]) -> Result<Self, String> {
        let binary = std::env::current_exe()
            .map_err(|error| format!("cannot find the path of this binary: {error}"))?;
        let mut command = Command::new(binary);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // Settings in the environment must not change the demo.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONCEWARD_")) {
            command.env_remove(name);
        }
        command.env("RUST_LOG", "error");
        let mut child = command.spawn().map_err(|error| format!("cannot start this binary: {error}"))?;
        let output = child.stdout.take().expect("piped above");
        let addresses = timeout(START_WITHIN, addresses(output, lines)).await;
        match addresses {
            Ok(Ok(addresses)) => Ok(Self { child, addresses }),
            Ok(Err(why)) => Err(format!("`onceward {}` did not start{why}", args[0])),
            Err(_) => Err(format!("`onceward {}` did not start within {START_WITHIN:?}", args[0])),
        }
    }
}

/// The address after each of `lines`, in their order.
async fn addresses(output: tokio::process::ChildStdout, lines: &[&str]) -> Result<Vec<String>, String> {
    let mut found: Vec<Option<String>> = vec![None; lines.len()];
    let mut output = BufReader::new(output).lines();
    while found.iter().any(Option::is_none) {
        let Some(line) = output.next_line().await.map_err(|error| format!(": {error}"))? else {
            return Err(String::new());
        };
        for (slot, begin) in found.iter_mut().zip(lines) {
            if let Some(address) = line.strip_prefix(begin).and_then(|url| url.trim().strip_prefix("http://"))
            {
                *slot = Some(address.to_owned());
            }
        }
    }
    // Nothing more is printed there, so the pipe can be closed.
    Ok(found.into_iter().flatten().collect())
}
