//! Runs wrk to generate load, and parses its output.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::NamedTempFile;

use crate::latency::Latency;
use crate::process::{Missing, program};
use crate::turns::Turn;

const SCRIPT: &str = include_str!("wrk.lua");

/// wrk with our script.
pub(super) struct Wrk {
    program: PathBuf,
    script: NamedTempFile,
}

/// Which keys requests have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    Fresh,
    Same,
    None,
    /// Fresh ones, each with a body that no other request has.
    Distinct,
}

impl Wrk {
    pub(super) fn find() -> Result<Self, Missing> {
        let script = NamedTempFile::new().unwrap();
        std::fs::write(script.path(), SCRIPT).unwrap();
        Ok(Self { program: program("wrk", "wrk")?, script })
    }

    /// Requests per second to this port, every one of which was answered well.
    pub(super) fn load(&self, port: u16, keys: Keys, connections: usize, length: Duration) -> Turn {
        let output = self.start(port, keys, connections, length).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        parse(&text).unwrap_or_else(|| panic!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// The same, left to run.
    pub(super) fn start(&self, port: u16, keys: Keys, connections: usize, length: Duration) -> Child {
        // No key is ever sent by two runs.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let run = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let keys = match keys {
            Keys::Fresh => "fresh",
            Keys::Same => "same",
            Keys::None => "none",
            Keys::Distinct => "distinct",
        };
        // It takes whole seconds.
        let seconds = length.as_secs().max(1);
        Command::new(&self.program)
            .args(["-t", "2", "-c", &connections.to_string(), "-d", &format!("{seconds}s"), "-s"])
            .arg(self.script.path())
            .args([&format!("http://127.0.0.1:{port}"), "--", keys, &run])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// Reads the line that our script prints; `None` if it is not there or a request failed.
pub(super) fn parse(text: &str) -> Option<Turn> {
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "))?;
    let numbers: Option<Vec<f64>> = line.split(' ').map(|number| number.parse().ok()).collect();
    let [requests, micros, failed, quantiles @ ..] = &numbers?[..] else { return None };
    if *failed > 0.0 || *requests <= 0.0 {
        return None;
    }
    Some(Turn::with_latency(requests / micros * 1e6, Some(Latency::from_quantiles(quantiles.to_vec()))))
}

#[cfg(test)]
#[path = "wrk_test.rs"]
mod tests;
