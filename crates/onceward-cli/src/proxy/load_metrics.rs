//! The metrics of load: what runs and what is answered, the bounds on new keys, and the limits of routes that shed load.

use std::fmt::Write;

use super::serve::Gateway;

/// Writes them in the Prometheus text format.
pub fn write(gateway: &Gateway, out: &mut String) {
    let admission = &gateway.state.admission;
    for (name, value) in [("running", admission.running()), ("answering", admission.answering())] {
        let _ = writeln!(out, "# TYPE onceward_http_{name} gauge\nonceward_http_{name} {value}");
    }
    let new_keys: Vec<_> = admission.new_keys().collect();
    out.push_str("# TYPE onceward_http_new_keys_taken_most gauge\n");
    for (by, taken_most, _) in &new_keys {
        let _ = writeln!(out, "onceward_http_new_keys_taken_most{{by=\"{by}\"}} {taken_most}");
    }
    out.push_str("# TYPE onceward_http_new_keys_refused_total counter\n");
    for (by, _, refused) in &new_keys {
        let _ = writeln!(out, "onceward_http_new_keys_refused_total{{by=\"{by}\"}} {refused}");
    }
    let table = gateway.table.load();
    let shed: Vec<_> = table
        .routes()
        .each()
        .filter_map(|route| Some((route.pattern.to_string(), route.route.shedding_state()?)))
        .collect();
    let gauge = |out: &mut String, name: &str, value: fn(&(usize, usize)) -> usize| {
        let _ = writeln!(out, "# TYPE onceward_http_shedding_{name} gauge");
        for (route, state) in &shed {
            // The text of a pattern has no line break.
            let route = route.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(out, "onceward_http_shedding_{name}{{route=\"{route}\"}} {}", value(state));
        }
    };
    gauge(out, "limit", |(limit, _)| *limit);
    gauge(out, "in_flight", |(_, in_flight)| *in_flight);
}
