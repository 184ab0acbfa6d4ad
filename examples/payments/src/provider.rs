//! Stands for a payment provider that honours keys. Its book is a file, so that it outlives this service as a
//! real one would.

use std::fs::OpenOptions;
use std::io::{Read, Result, Write};
use std::path::PathBuf;
use std::time::Duration;

use onceward::ChildKey;

/// A provider far away.
#[derive(Clone)]
pub struct Provider {
    book: PathBuf,
    /// How long each way takes.
    way: Duration,
}

impl Provider {
    pub fn new(book: PathBuf, way: Duration) -> Self {
        Self { book, way }
    }

    /// Transfers the first time that it is asked under this key; from then on it only says that it did.
    pub async fn transfer(&self, key: ChildKey, amount: i64) -> Result<String> {
        tokio::time::sleep(self.way).await;
        let transfer = format!("transfer {key} of {amount}\n");
        let mut book = OpenOptions::new().create(true).read(true).append(true).open(&self.book)?;
        // Whoever looks into the book has it to himself, also if an old process of ours is still about.
        book.lock()?;
        let mut transfers = String::new();
        book.read_to_string(&mut transfers)?;
        if !transfers.lines().any(|line| line == transfer.trim_end()) {
            book.write_all(transfer.as_bytes())?;
        }
        drop(book);
        tokio::time::sleep(self.way).await;
        Ok(transfer.trim_end().to_owned())
    }
}
