//! A run of the client's command, in a process group of its own.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::{INTENT_VARIABLE, URL_VARIABLE};
use crate::endpoint::Said;

/// A run that continues. Dropping it kills the group.
pub(super) struct ClientProcess {
    child: Child,
    group: Pid,
    said: Option<Said>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself; whether it says that it succeeded.
    Exited(bool),
    /// It was killed by us, because it took too long.
    TookTooLong,
}

impl ClientProcess {
    pub(super) fn start(command: &str, url: &str, intent: &str) -> io::Result<Self> {
        let command = command.replace("{url}", url).replace("{intent}", intent);
        let mut child = Command::new("sh")
            .args(["-c", &command])
            .env(URL_VARIABLE, url)
            .env(INTENT_VARIABLE, intent)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let group = group.ok_or_else(|| io::Error::other("the command ended at once"))?;
        let said = Some(Said::by(&mut child));
        Ok(Self { child, group, said })
    }

    /// Waits for its end, but no longer than this.
    pub(super) async fn end(&mut self, within: Duration) -> io::Result<Ended> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => Ok(Ended::Exited(status?.success())),
            Err(_) => {
                self.kill().await;
                Ok(Ended::TookTooLong)
            }
        }
    }

    /// What it wrote, for the end of a message, once it has ended.
    pub(super) async fn last_lines(mut self) -> String {
        let said = match self.said.take() {
            Some(said) => said.last_lines().await,
            None => None,
        };
        said.unwrap_or_else(|| "; it wrote nothing".to_owned())
    }

    /// Kills it where it stands.
    pub(super) async fn kill(&mut self) {
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait().await;
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        // Once it was waited for, its number may be another's.
        if self.child.id().is_some() {
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}
