//! What a program that was started wrote, to be quoted where it does not do what it was started for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;

/// The last lines that a program wrote. They are read for as long as it runs: a full pipe would stop it.
pub(crate) struct Said {
    lines: Lines,
    reading: Vec<JoinHandle<()>>,
}

type Lines = Arc<Mutex<VecDeque<String>>>;

/// As much as helps to see why it did not start.
const LINES_KEPT: usize = 8;
/// Of a longer line only the beginning is kept.
const LINE_CHARS_MAX: usize = 400;
/// What was written is read by then, once the program has ended.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

impl Said {
    /// Reads those of its outputs that are pipes.
    pub(crate) fn by(child: &mut Child) -> Self {
        let lines = Lines::default();
        let stdout = child.stdout.take().map(|out| tokio::spawn(keep(out, lines.clone())));
        let stderr = child.stderr.take().map(|out| tokio::spawn(keep(out, lines.clone())));
        Self { lines, reading: stdout.into_iter().chain(stderr).collect() }
    }

    /// For the end of a message; none if it wrote nothing.
    pub(crate) async fn last_lines(self) -> Option<String> {
        let Self { lines, reading } = self;
        let all = async {
            for reading in reading {
                let _ = reading.await;
            }
        };
        // What the program left running may keep its outputs open.
        let _ = tokio::time::timeout(READ_TIMEOUT, all).await;
        let lines = lines.lock().expect("nobody panics with it in hand");
        let text = |text: String, line: &String| text + "\n    " + line;
        (!lines.is_empty()).then(|| lines.iter().fold(String::from("; it wrote:"), text))
    }
}

async fn keep(out: impl AsyncRead + Unpin, kept: Lines) {
    let mut reader = BufReader::new(out);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().chars().take(LINE_CHARS_MAX).collect();
        let mut kept = kept.lock().expect("nobody panics with it in hand");
        kept.push_back(text);
        if kept.len() > LINES_KEPT {
            kept.pop_front();
        }
        line.clear();
    }
}
