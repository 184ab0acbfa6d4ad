//! How the embedded store's cost grows with the number of receipts in it.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use std::path::Path;
use std::sync::Arc;

use onceward::{Onceward, Record, Seen, State, Store, Swap, Swapped};
use onceward_stores::embedded::{EmbeddedStore, Options};

use crate::embedded::{claims_per_second, id};
use crate::table::{Table, median};

const BATCH: u64 = 4_096;
const SECONDS: u64 = 5;
/// Rounds of measuring at each size.
const ROUNDS: u64 = 6;
/// Filled ids live in rounds from here on, apart from the measured ones.
const FILL_ROUND: u64 = 1 << 20;

/// Measures one store at two sizes, in millions of receipts.
pub fn run(small: u64, large: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let table = Table::start("embedded store as it grows, 512 callers, synced");
    let mut rates = Vec::new();
    let mut have = 0;
    let store: Arc<dyn Store> =
        runtime.block_on(async { Arc::new(EmbeddedStore::open(&path, Options::default()).await.unwrap()) });
    for (at, millions) in [small, large].into_iter().enumerate() {
        runtime.block_on(fill(&store, have, millions * 1_000_000));
        have = millions * 1_000_000;
        let onceward = Onceward::new(store.clone()).unwrap();
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let rate = runtime.block_on(claims_per_second(&onceward, 100 * at as u64 + round, SECONDS));
            eprintln!("  round {} at {millions} M: {rate:.0}/s", round + 1);
            // The first one warms up.
            if round > 0 {
                rounds.push(rate);
            }
        }
        let rate = median(rounds);
        rates.push(rate);
        let resident = resident_megabytes();
        let disk = folder_bytes(&path) as f64 / have as f64;
        table.row(&format!("claims at {millions} M receipts"), &format!("{rate:.0}/s"), "", None);
        let goal = if at == 1 { ("< 600 MB", Some(resident < 600.0)) } else { ("", None) };
        table.row("  resident memory of the whole process", &format!("{resident:.0} MB"), goal.0, goal.1);
        table.row("  disk per receipt", &format!("{disk:.0} bytes"), "", None);
    }
    let ratio = rates[1] / rates[0];
    let what = format!("claims at {large} M / at {small} M");
    table.row(&what, &format!("{ratio:.2}"), ">= 0.60", Some(ratio >= 0.6));
}

/// Puts done receipts straight into the store, synced like all others.
async fn fill(store: &Arc<dyn Store>, from: u64, to: u64) {
    let bytes = bytes::Bytes::from(vec![b'x'; 197]);
    let due_in = Some(std::time::Duration::from_hours(24));
    let mut number = from;
    while number < to {
        let mut batch: Vec<_> = (number..(number + BATCH).min(to))
            .map(|number| {
                let record = Record { state: State::Done, due_in, bytes: bytes.clone() };
                Swap { id: id(FILL_ROUND, number), seen: Seen::Absent, new: Some(record) }
            })
            .collect();
        batch.sort_by(|a, b| a.id.cmp(&b.id));
        let answers = store.swap(&batch).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Swapped::Won(_))));
        number += BATCH;
        if number.is_multiple_of(BATCH * 100) {
            eprint!("\r  filling: {:.1} of {:.0} M", number as f64 / 1e6, to as f64 / 1e6);
        }
    }
    eprintln!();
}

fn resident_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes / 1024.0
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
            // Blocks in use, not the length: journals are preallocated.
            Ok(data) => std::os::unix::fs::MetadataExt::blocks(&data) * 512,
            Err(_) => 0,
        })
        .sum()
}
