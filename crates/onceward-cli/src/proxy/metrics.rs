//! What the wire has counted, as Prometheus text.

use std::fmt::Write;

use onceward_http::Metrics;

/// Writes every meter of the wire. One name may come with several labels.
pub fn write(metrics: &Metrics, out: &mut String) {
    let mut last = "";
    for (name, label, value) in metrics.each() {
        // Everything only grows, except for what is under way now.
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
