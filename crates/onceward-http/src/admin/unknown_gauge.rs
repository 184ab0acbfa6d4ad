//! The gauge of unknown outcomes. It is read from the store when the metrics are asked for, so it is right after a
//! restart too, and does not depend on which process they happened in.

use std::fmt::Write;
use std::time::{Duration, Instant};

use onceward::{Onceward, UnknownCount};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Records read for one look. With more unknown outcomes the gauge says this many.
const RECORDS_MAX: usize = 20_000;
/// How long a look is reused: asking more often than this costs nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A look that takes longer is given up, and the gauge is left out.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// The last look.
#[derive(Debug, Default)]
pub(super) struct UnknownGauge {
    last: Mutex<Option<(Instant, Option<UnknownCount>)>>,
}

impl UnknownGauge {
    /// Appends the gauge as Prometheus text. Without an answer from the store it has no samples: a gap, not a zero.
    pub(super) async fn write(&self, onceward: &Onceward, out: &mut String) {
        let count = self.count(onceward).await;
        out.push_str("# TYPE onceward_unknown gauge\n");
        if let Some(count) = count {
            let _ = writeln!(out, "onceward_unknown{{state=\"unknown\"}} {}", count.unknown);
            let _ = writeln!(out, "onceward_unknown{{state=\"dead\"}} {}", count.dead);
        }
        out.push_str("# TYPE onceward_unknown_oldest_seconds gauge\n");
        if let Some(count) = count {
            let oldest = count.oldest.unwrap_or_default().as_secs_f64();
            let _ = writeln!(out, "onceward_unknown_oldest_seconds {oldest}");
        }
    }

    async fn count(&self, onceward: &Onceward) -> Option<UnknownCount> {
        let mut last = self.last.lock().await;
        if let Some((at, count)) = &*last
            && at.elapsed() < LOOK_EVERY
        {
            return *count;
        }
        let count = match timeout(LOOK_WITHIN, onceward.count_unknown(RECORDS_MAX)).await {
            Ok(Ok(count)) => Some(count),
            Ok(Err(error)) => {
                tracing::warn!(%error, "unknown outcomes cannot be counted");
                None
            }
            Err(_) => {
                tracing::warn!("unknown outcomes cannot be counted: the store took over {LOOK_WITHIN:?}");
                None
            }
        };
        *last = Some((Instant::now(), count));
        count
    }
}
