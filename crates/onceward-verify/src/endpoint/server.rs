//! A server that is started by a command, killed without warning, and started again.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::error::{Error, ErrorKind, Result};
use super::place::Place;
use super::said::Said;

/// A server that does not listen by then is not going to.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What was killed has let go of its port by then.
const FREE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is knocked at.
const KNOCK_EVERY: Duration = Duration::from_millis(10);

/// A running server, in a process group of its own. Dropping it kills the group.
pub(super) struct Server {
    command: String,
    place: Place,
    running: Option<ServerProcess>,
}

struct ServerProcess {
    child: Child,
    group: Pid,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Children that the command left in its group hold the port as well as it does.
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

impl Server {
    /// Starts the server and waits until it listens.
    pub(super) async fn start(command: &str, place: &Place) -> Result<Self> {
        let mut server = Self { command: command.to_owned(), place: place.clone(), running: None };
        server.restart().await?;
        Ok(server)
    }

    /// Kills it where it stands.
    pub(super) async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = kill_process_group(running.group, Signal::KILL);
            let _ = running.child.wait().await;
        }
    }

    /// Starts it again, killed before if it is still up, and waits until it listens.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.kill().await;
        let failed = |why: String| Error::new(ErrorKind::Unreachable, format!("`{}`: {why}", self.command));
        let start = Instant::now();
        while self.place.is_up().await {
            if start.elapsed() > FREE_TIMEOUT {
                return Err(failed(format!("something else already listens at {}", self.place.as_str())));
            }
            tokio::time::sleep(KNOCK_EVERY).await;
        }
        let mut child = Command::new("sh")
            .args(["-c", &self.command])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let group = group.ok_or_else(|| failed("ended at once".to_owned()))?;
        let said = Said::by(&mut child);
        let mut running = ServerProcess { child, group };
        while !self.place.is_up().await {
            if let Ok(Some(status)) = running.child.try_wait() {
                let said = quoted(said).await;
                return Err(failed(format!("ended with {status} and never listened{said}")));
            }
            if start.elapsed() > START_TIMEOUT {
                drop(running);
                let said = quoted(said).await;
                let place = self.place.as_str();
                return Err(failed(format!("does not listen at {place} after a minute{said}")));
            }
            tokio::time::sleep(KNOCK_EVERY).await;
        }
        self.running = Some(running);
        Ok(())
    }
}

/// What a server wrote, for the end of a message.
async fn quoted(said: Said) -> String {
    said.last_lines().await.unwrap_or_else(|| "; it wrote nothing to its standard error".to_owned())
}

/// Runs the command that comes after each start, and reads the header fields that it prints, one per line.
pub(super) async fn log_in(command: &str) -> Result<Vec<(String, String)>> {
    let failed = |why: String| Error::new(ErrorKind::Unreachable, format!("`{command}`: {why}"));
    let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(START_TIMEOUT, output)
        .await
        .map_err(|_| failed("is not done after a minute".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let field = |(index, line): (usize, &str)| {
        // The line itself is not quoted: it may be a bare token.
        let wrong = || failed(format!("printed a line that is no header field (line {})", index + 1));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let is_sound = http::HeaderName::from_bytes(name.trim().as_bytes()).is_ok()
            && http::HeaderValue::from_str(value.trim()).is_ok();
        if !is_sound {
            return Err(wrong());
        }
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines.map(field).collect()
}
