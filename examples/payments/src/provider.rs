//! A stand-in for a payment provider that honours idempotency keys. It records transfers in a file, so that they
//! outlive this service.

use std::fs::OpenOptions;
use std::io::{Read, Result, Write};
use std::path::PathBuf;
use std::time::Duration;

use onceward::ChildKey;

/// A remote payment provider.
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

    /// Transfers on the first request with this key; later requests return the same result without a transfer.
    pub async fn transfer(&self, key: ChildKey, amount: i64) -> Result<String> {
        tokio::time::sleep(self.way).await;
        let transfer = format!("transfer {key} of {amount}\n");
        let mut book = OpenOptions::new().create(true).read(true).append(true).open(&self.book)?;
        // The file is locked, because an old process of this service may still be running.
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
