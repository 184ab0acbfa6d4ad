//! The work that all services of the zoo do, with a count of its effects.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::events::Inbox;
use super::limits::Limits;
use super::server::{Ask, Reply};

/// How long the work takes unless a request says otherwise. Long enough to be interrupted.
pub const WORK: Duration = Duration::from_millis(20);

/// Charges what it is asked to, and counts.
#[derive(Debug, Default)]
pub struct Charges {
    effects: AtomicI64,
    ids: AtomicI64,
    book: Option<Mutex<File>>,
    folder: Option<PathBuf>,
    pub(super) limits: Limits,
    pub(super) inbox: Inbox,
}

impl Charges {
    /// A charges whose books last for longer than the process: a line in a file for each effect.
    pub fn in_folder(folder: &Path) -> std::io::Result<Self> {
        let path = folder.join("effects");
        let lines = std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
        let effects = i64::try_from(lines).unwrap_or_default();
        let book = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            effects: effects.into(),
            ids: effects.into(),
            book: Some(Mutex::new(book)),
            folder: Some(folder.to_owned()),
            limits: Limits::default(),
            inbox: Inbox::default(),
        })
    }

    /// How many effects there were.
    pub fn effects(&self) -> i64 {
        self.effects.load(Ordering::SeqCst)
    }

    /// Where the books are.
    pub(super) fn folder(&self) -> &Path {
        self.folder.as_deref().expect("only services with books on disk ask for it")
    }

    /// Works, and then charges: the effect is the last thing that happens.
    pub async fn charge(&self, ask: &Ask) -> Reply {
        match self.work(ask).await {
            Ok(()) => {
                self.effect("");
                self.receipt(ask)
            }
            Err(failure) => failure,
        }
    }

    /// Only the work, which can fail.
    pub(super) async fn work(&self, ask: &Ask) -> Result<(), Reply> {
        tokio::time::sleep(ask.work).await;
        if ask.fails { Err(Reply::plain(500, "the provider is down")) } else { Ok(()) }
    }

    /// Only the effect, with a line for the books.
    pub(super) fn effect(&self, line: &str) {
        if let Some(book) = &self.book {
            let line = format!("{line}\n");
            let mut book = book.lock().expect("nobody panics with the book in hand");
            book.write_all(line.as_bytes()).expect("the file is writable");
        }
        self.effects.fetch_add(1, Ordering::SeqCst);
    }

    /// Only the answer, with a number that no other answer has; or the failure that the request asked for.
    pub(super) fn receipt(&self, ask: &Ask) -> Reply {
        if let Some(status) = ask.fails_after {
            let fields = if status == 503 { vec![("retry-after", "1".to_owned())] } else { Vec::new() };
            return Reply { fields, ..Reply::plain(status, "the answer was lost") };
        }
        let id = self.ids.fetch_add(1, Ordering::SeqCst);
        let asked: Value = serde_json::from_slice(&ask.body).unwrap_or_default();
        let fields =
            vec![("content-type", "application/json".to_owned()), ("location", format!("{}/{id}", ask.path))];
        // Not in the order of the alphabet, so that parsing it and writing it again shows.
        let body = format!(r#"{{"status":"charged", "id":{id}, "amount":{}}}"#, asked["amount"]);
        Reply { status: 201, fields, body }
    }
}
