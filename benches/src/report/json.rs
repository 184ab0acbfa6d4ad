//! Writes the report as JSON: every round, and the values derived from them.

use serde_json::{Value, json};

use super::{Ending, Report, Row, Side};

pub(super) fn render(report: &Report) -> String {
    let entries: Vec<Value> = report
        .entries
        .iter()
        .map(|entry| {
            let mut value = json!({ "name": entry.name, "about": entry.about, "seconds": entry.seconds });
            match &entry.ending {
                Ending::Measured(findings) => {
                    value["rows"] = findings.rows.iter().map(row).collect();
                    value["growths"] = json!(findings.growths);
                }
                Ending::Missing(why) => value["missing"] = json!(why),
                Ending::Failed(why) => value["failed"] = json!(why),
            }
            value
        })
        .collect();
    let report = json!({
        "scale": report.scale,
        "machine": report.machine,
        "quantiles": crate::latency::QUANTILES,
        "benchmarks": entries,
    });
    format!("{report:#}\n")
}

fn row(row: &Row) -> Value {
    let judged = row.judged();
    let (least, most) = judged.spread();
    json!({
        "what": row.what,
        "unit": row.unit,
        "ours": side(&row.ours),
        "other": row.other.as_ref().map(side),
        "judged": { "as": row.judged, "median": judged.median(), "least": least, "most": most },
        "goal": row.goal,
        "met": row.met(),
    })
}

fn side(side: &Side) -> Value {
    let (least, most) = side.spread();
    let mut value = json!(side);
    value["median"] = json!(side.median());
    value["least"] = json!(least);
    value["most"] = json!(most);
    value
}
