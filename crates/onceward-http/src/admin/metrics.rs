//! `/metrics`: the counters of the engine, of the layers and of the rest of the process, as Prometheus text. What
//! each one means is in `docs/operations.md`; a test compares the two.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use super::Admin;
use crate::metrics::Metrics;

/// Unknown outcomes that were settled through this API, by result.
#[derive(Default)]
pub(super) struct Settlements {
    pub(super) done: AtomicU64,
    pub(super) not_done: AtomicU64,
}

pub(super) async fn metrics(State(state): State<Arc<Admin>>) -> impl IntoResponse {
    let mut out = String::with_capacity(16 << 10);
    for (name, value) in state.onceward.counts().each() {
        let _ = writeln!(out, "# TYPE onceward_{name}_total counter\nonceward_{name}_total {value}");
    }
    for write in &state.more_metrics {
        write(&mut out);
    }
    out.push_str("# TYPE onceward_settlements_total counter\n");
    for (found, count) in [("done", &state.settlements.done), ("not_done", &state.settlements.not_done)] {
        let count = count.load(Ordering::Relaxed);
        let _ = writeln!(out, "onceward_settlements_total{{found=\"{found}\"}} {count}");
    }
    state.unknown_gauge.write(&state.onceward, &mut out).await;
    let version = env!("CARGO_PKG_VERSION");
    let started = state.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let _ = writeln!(
        out,
        "# TYPE onceward_build_info gauge\nonceward_build_info{{version=\"{version}\"}} 1\n\
         # TYPE onceward_start_time_seconds gauge\nonceward_start_time_seconds {started}"
    );
    if let Some(metrics) = &state.layer_metrics {
        write_layer_metrics(metrics, &mut out);
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], out)
}

/// Writes every metric of the HTTP layer. One name may have several labels.
fn write_layer_metrics(metrics: &Metrics, out: &mut String) {
    let mut last = "";
    for (name, label, value) in metrics.each() {
        // Everything is a counter, except for the requests in flight.
        let (kind, suffix) = if name == "in_flight" { ("gauge", "") } else { ("counter", "_total") };
        if name != last {
            let _ = writeln!(out, "# TYPE onceward_http_{name}{suffix} {kind}");
            last = name;
        }
        let _ = match label {
            None => writeln!(out, "onceward_http_{name}{suffix} {value}"),
            Some((label, of)) => writeln!(out, "onceward_http_{name}{suffix}{{{label}=\"{of}\"}} {value}"),
        };
    }
}
