//! Measures what sweeping costs concurrent traffic: claims during back-to-back sweeps of expired receipts, compared
//! with claims alone in the same store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::{Onceward, Store, Sweep};
use onceward_stores::PostgresStore;
use onceward_stores::embedded::{EmbeddedStore, Options};
use tokio::runtime::Runtime;

use super::embedded::claims;
use super::growth::{put_done, sample};
use super::postgres;
use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Row, Side, Unit};
use crate::scale::Scale;
use crate::turns::Turns;

/// How long those receipts are kept that a sweep finds.
const RETENTION: Duration = Duration::from_millis(1);
/// Expired ids live in rounds from here on, apart from the measured ones.
const EXPIRED_ROUND: u64 = 1 << 20;

/// A store that is swept.
struct Swept {
    store: Arc<dyn Store>,
    /// Receipts that are due when a sweep begins, for each second of its round: more than it gets through.
    due_per_second: f64,
}

/// Measures the embedded store.
pub fn embedded(scale: &Scale) -> Result<Findings, Missing> {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let opening = EmbeddedStore::open(folder.path().join("store"), Options::default());
    let store = Arc::new(runtime.block_on(opening).unwrap());
    Ok(measure(&runtime, &Swept { store, due_per_second: 80_000.0 }, scale))
}

/// Measures the PostgreSQL store.
pub fn postgres(scale: &Scale) -> Result<Findings, Missing> {
    let (server, runtime) = (postgres::start()?, runtime());
    let url = server.database("sweep");
    let opening = PostgresStore::open(&url, onceward_stores::sql::Options::default());
    let store = Arc::new(runtime.block_on(opening).unwrap());
    Ok(measure(&runtime, &Swept { store, due_per_second: 30_000.0 }, scale))
}

/// Claims with and without a sweep, and the sweep beside them.
fn measure(runtime: &Runtime, swept: &Swept, scale: &Scale) -> Findings {
    let Swept { store, due_per_second } = swept;
    let onceward = runtime.block_on(async { Onceward::new(store.clone()).unwrap() });
    let sample = runtime.block_on(sample(store.clone(), EXPIRED_ROUND, 0));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of receipts")]
    let due = (due_per_second * scale.round.as_secs_f64()) as u64;
    let mut swept_per_second = Vec::new();
    let [beside, alone] = Turns::new(scale.rounds, Unit::PerSecond).take([
        ("beside a sweep", &mut |round| {
            let round = round as u64;
            runtime.block_on(async {
                let expired = EXPIRED_ROUND + 1 + round;
                put_done(&**store, &sample, expired, 0..due, RETENTION).await;
                tokio::time::sleep(RETENTION).await;
                let sweeping = async { swept_per_second.push(sweep(&onceward, scale.round).await) };
                claims(&onceward, 2 * round, sweeping).await
            })
        }),
        ("alone", &mut |round| {
            let round = 2 * round as u64 + 1;
            runtime.block_on(async { claims(&onceward, round, tokio::time::sleep(scale.round)).await })
        }),
    ]);
    let swept = Side::new("swept", swept_per_second);
    let rows = vec![
        Row::ratio("claims beside a sweep / alone", Unit::PerSecond, &beside, &alone),
        Row::alone("receipts swept meanwhile", Unit::PerSecond, &swept),
    ];
    Findings { rows, ..Findings::default() }
}

/// Receipts removed per second, until none is due or the round is over.
async fn sweep(onceward: &Onceward, length: Duration) -> f64 {
    let (start, mut removed) = (Instant::now(), 0);
    while start.elapsed() < length {
        let swept = onceward.sweep(&Sweep::default()).await.unwrap();
        removed += swept.removed;
        if swept.finished {
            break;
        }
    }
    removed as f64 / start.elapsed().as_secs_f64()
}
