//! The processes of the demo, and the calls that its acts make.

use std::process::Stdio;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::service::Charge;
use crate::call::{Answer, Call};

/// A process must say where it listens within this time.
const START_WITHIN: Duration = Duration::from_secs(30);

/// Short, so that nobody has to wait long for a dead gateway's lease to end.
const CONFIG: &str = "[defaults]\nlease = \"2s\"\n";

/// A payments service and a gateway in front of it. Dropping it ends both and removes what they kept.
pub struct Stage {
    folder: TempDir,
    service: Process,
    gateway: Process,
    /// The first answer of all: what every replay is compared with.
    pub first: Option<Answer>,
}

struct Process {
    child: Child,
    /// `host:port` of each place it named, in the order it was asked for.
    places: Vec<String>,
}

/// What the service's ledger says.
#[derive(Deserialize)]
pub struct Ledger {
    pub charges: u64,
    pub ledger: Vec<Charge>,
}

impl Stage {
    pub async fn set() -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("onceward-demo-").tempdir();
        let folder = folder.map_err(|error| format!("no temporary folder: {error}"))?;
        let config = folder.path().join("onceward.toml");
        std::fs::write(&config, CONFIG).map_err(|error| format!("{}: {error}", config.display()))?;
        let service = Process::start(&["demo-service"], &["payments on "]).await?;
        let gateway = start_gateway(&folder, &service.places[0], "127.0.0.1:0", "127.0.0.1:0").await?;
        Ok(Self { folder, service, gateway, first: None })
    }

    pub fn service(&self) -> &str {
        &self.service.places[0]
    }

    pub fn gateway(&self) -> &str {
        &self.gateway.places[0]
    }

    pub fn admin(&self) -> &str {
        &self.gateway.places[1]
    }

    /// A payment through the gateway.
    pub fn pay(&self, tenant: &str, key: &str, amount: u64) -> Call {
        Call::new(Method::POST, self.gateway(), "/charges")
            .field("authorization", &format!("Bearer {tenant}"))
            .field("idempotency-key", &format!("\"{key}\""))
            .json(format!("{{\"amount\":{amount}}}"))
    }

    /// Charges that were really made.
    pub async fn charges(&self) -> Result<u64, String> {
        Ok(self.ledger().await?.charges)
    }

    pub async fn ledger(&self) -> Result<Ledger, String> {
        let answer = Call::new(Method::GET, self.service(), "/ledger").send().await?;
        serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
    }

    /// How long the service takes to answer once it has charged.
    pub async fn pace(&self, pace: Duration) -> Result<Answer, String> {
        let path = format!("/pace/{}", pace.as_millis());
        Call::new(Method::PUT, self.service(), &path).send().await
    }

    /// SIGKILL: nothing of the gateway gets to say goodbye.
    pub async fn kill_gateway(&mut self) -> Result<(), String> {
        self.gateway.child.kill().await.map_err(|error| format!("cannot kill the gateway: {error}"))
    }

    /// Starts it again, on the same receipts and the same ports.
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
    let config = config.to_str().ok_or("the temporary folder has no plain name")?;
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
    /// Starts this binary, and waits until it has said each of `lines` with an address behind it.
    async fn start(args: &[&str], lines: &[&str]) -> Result<Self, String> {
        let binary = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
        let mut command = Command::new(binary);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // The demo is the same everywhere, whatever the surroundings say.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ONCEWARD_")) {
            command.env_remove(name);
        }
        command.env("RUST_LOG", "error");
        let mut child = command.spawn().map_err(|error| format!("cannot start myself: {error}"))?;
        let output = child.stdout.take().expect("piped above");
        let places = timeout(START_WITHIN, places(output, lines)).await;
        match places {
            Ok(Ok(places)) => Ok(Self { child, places }),
            Ok(Err(said)) => Err(format!("`onceward {}` did not start{said}", args[0])),
            Err(_) => Err(format!("`onceward {}` did not start within {START_WITHIN:?}", args[0])),
        }
    }
}

/// The addresses behind `lines`, in their order.
async fn places(output: tokio::process::ChildStdout, lines: &[&str]) -> Result<Vec<String>, String> {
    let mut found: Vec<Option<String>> = vec![None; lines.len()];
    let mut output = BufReader::new(output).lines();
    while found.iter().any(Option::is_none) {
        let Some(line) = output.next_line().await.map_err(|error| format!(": {error}"))? else {
            return Err(String::new());
        };
        for (place, begin) in found.iter_mut().zip(lines) {
            if let Some(address) = line.strip_prefix(begin).and_then(|url| url.trim().strip_prefix("http://"))
            {
                *place = Some(address.to_owned());
            }
        }
    }
    // Nobody reads on, and nothing more is said there.
    Ok(found.into_iter().flatten().collect())
}
