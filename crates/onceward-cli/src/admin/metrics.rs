//! `/metrics`: what the engine, its store and the rest of the process have counted, as Prometheus text.
//! What each one means, and what to do about it, stands in `docs/operations.md`; a test compares the two.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use super::AdminState;

/// Doubts ended here, by what was found out.
#[derive(Default)]
pub(super) struct Settlements {
    pub(super) done: AtomicU64,
    pub(super) not_done: AtomicU64,
}

pub(super) async fn metrics(State(state): State<Arc<AdminState>>) -> impl IntoResponse {
    let mut out = String::with_capacity(16 << 10);
    for (name, value) in state.onceward.counts().each() {
        let _ = writeln!(out, "# TYPE onceward_{name}_total counter\nonceward_{name}_total {value}");
    }
    state.measures.write(&mut out);
    out.push_str("# TYPE onceward_settlements_total counter\n");
    for (found, count) in [("done", &state.settlements.done), ("not_done", &state.settlements.not_done)] {
        let count = count.load(Ordering::Relaxed);
        let _ = writeln!(out, "onceward_settlements_total{{found=\"{found}\"}} {count}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let started = state.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let _ = writeln!(
        out,
        "# TYPE onceward_build_info gauge\nonceward_build_info{{version=\"{version}\"}} 1\n\
         # TYPE onceward_start_time_seconds gauge\nonceward_start_time_seconds {started}"
    );
    (state.extra_metrics)(&mut out);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], out)
}
