//! Tests of the mode of the file.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use super::*;

/// Keeps the lines of the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_file_that_others_may_read_is_said_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
    let said = || String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("receipts.db");

    drop(SqliteStore::open(&file, Options::default()).await.unwrap());
    drop(SqliteStore::open(&file, Options::default()).await.unwrap());
    assert!(!said().contains("other users"), "{}", said());

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(SqliteStore::open(&file, Options::default()).await.unwrap());
    let said = said();
    assert!(said.contains("other users may read") && said.contains("0644"), "{said}");
    assert!(said.contains("receipts.db"), "{said}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o644, "it may be the application's own");
}
