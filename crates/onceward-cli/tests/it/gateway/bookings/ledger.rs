//! A service with a ledger that survives its process: one line for each key, so that a request that comes again has no
//! second effect.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::super::stage::{Received, Reply, Service};
use super::{is_declined, is_failed, is_lost, is_refused};

/// Every line is as long as this, so that the length of a ledger says how much was done.
const LINE_BYTES: usize = 96;

/// What a service has done, in the order in which it did it.
pub struct Ledger(Vec<Line>);

struct Line {
    kind: String,
    key: String,
    path: String,
    booking: String,
}

impl Ledger {
    /// A line that a killed process has not finished was never answered, and does not count.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line: &str| {
            let [kind, key, path, booking] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{line:?} is no line of a ledger")
            };
            let [kind, key, path, booking] = [kind, key, path, booking].map(str::to_owned);
            Line { kind, key, path, booking }
        };
        Self(whole.lines().map(line).collect())
    }

    /// Requests that were answered or are about to be, those that came again among them.
    pub fn requests(path: &Path) -> u64 {
        std::fs::metadata(path).map_or(0, |file| file.len() / LINE_BYTES as u64)
    }

    fn done(&self) -> impl Iterator<Item = &Line> {
        self.0.iter().filter(|line| line.kind == "effect")
    }

    pub fn effects(&self) -> usize {
        self.done().count()
    }

    /// The effects of one kind.
    pub fn count(&self, path: &str) -> usize {
        self.done().filter(|line| line.path == path).count()
    }

    /// Requests that came again after their effect.
    pub fn repeated(&self) -> usize {
        self.0.len() - self.effects()
    }

    /// The effects of one booking.
    pub fn of(&self, booking: &str) -> String {
        let of = self.done().filter(|line| line.booking == booking);
        of.map(|line| line.path.as_str()).collect::<Vec<_>>().join(" ")
    }
}

struct Book {
    file: File,
    keys: HashSet<String>,
}

impl Book {
    fn open(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.set_len(text.rfind('\n').map_or(0, |end| end as u64 + 1)).unwrap();
        let keys = Ledger::read(path).done().map(|line| line.key.clone()).collect();
        Self { file, keys }
    }

    /// One effect for each key.
    fn write(&mut self, key: &str, path: &str, booking: u64) {
        let kind = if self.keys.insert(key.to_owned()) { "effect" } else { "again" };
        // In one call, so that a kill leaves all of the line or none.
        let line = format!("{kind} {key} {path} {booking}");
        assert!(line.len() < LINE_BYTES, "{line}");
        self.file.write_all(format!("{line:<width$}\n", width = LINE_BYTES - 1).as_bytes()).unwrap();
    }
}

/// Serves until this process is killed.
pub fn serve(address: SocketAddr, ledger: &Path) {
    let book = Mutex::new(Book::open(ledger));
    let _service = Service::start_at(address, move |request| answer(request, &book));
    loop {
        thread::park();
    }
}

fn answer(request: &Received, book: &Mutex<Book>) -> Reply {
    let path = request.line.split(' ').nth(1).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let booking = body["booking"].as_u64().unwrap();
    if (path == "/charges" && is_declined(booking)) || (path == "/mails" && is_refused(booking)) {
        return Reply::Answer(402, "{}".into());
    }
    book.lock().unwrap().write(request.key().trim_matches('"'), path, booking);
    if path == "/held-charges" && is_lost(booking) {
        return Reply::Raw(Vec::new());
    }
    // The answer takes its time, so that kills come between an effect and its answer.
    thread::sleep(Duration::from_millis(booking % 7));
    if path == "/mails" && is_failed(booking) {
        return Reply::Answer(500, "{}".into());
    }
    Reply::created("{}")
}
