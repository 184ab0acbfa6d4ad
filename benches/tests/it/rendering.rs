//! Renders a made-up report as table, JSON and HTML.

use onceward_bench::latency::{Latency, QUANTILES};
use onceward_bench::report::{Ending, Entry, Findings, Goal, Growth, Report, Row, Side, Unit};

fn report() -> Report {
    let timed = |name, rounds: [f64; 3], micros: f64| Side {
        latency: Some(Latency::from_quantiles(QUANTILES.map(|quantile| micros * (1.0 + quantile)).to_vec())),
        ..Side::new(name, rounds.to_vec())
    };
    let (ours, nginx) = (timed("gateway", [20e3, 21e3, 22e3], 2e3), timed("nginx", [30e3, 30e3, 30e3], 1e3));
    let rows = vec![
        Row::ratio("first run / nginx", Unit::PerSecond, &ours, &nginx).goal(Goal::AtLeast(0.5)),
        Row::ratio("replay / nginx", Unit::PerSecond, &ours, &nginx).goal(Goal::AtLeast(1.5)),
        Row::alone("<b>trips</b> & more", Unit::Trips, &Side::new("trips", vec![2.0])),
    ];
    let curves = vec![("claims".to_owned(), vec![(1e5, 5e4), (1e6, 4e4), (1e7, 3e4)])];
    let growth =
        Growth { what: "claims as it grows".to_owned(), over: "receipts", unit: Unit::PerSecond, curves };
    let entry = |name, ending| Entry { name, about: "made up", seconds: 1.0, ending };
    Report {
        scale: "quick",
        machine: "a desk".to_owned(),
        entries: vec![
            entry("gateway", Ending::Measured(Findings { rows, growths: vec![growth] })),
            entry("postgres", Ending::Missing("PostgreSQL is not installed".to_owned())),
            entry("client", Ending::Failed("it broke".to_owned())),
        ],
    }
}

#[test]
fn the_table_has_every_row_and_is_loud_about_what_did_not_run() {
    let table = report().table();
    let lines: Vec<&str> = table.lines().collect();
    let cells = |line: &str| line.split('│').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(cells(lines[0]), ["what", "ours", "other", "ratio", "goal", "ok"]);
    assert_eq!(
        cells(lines[3]),
        ["first run / nginx", "21,000/s ±5%", "30,000/s", "0.70 (0.67–0.73)", "≥ 0.5", "yes"]
    );
    assert_eq!(cells(lines[4])[4..], ["≥ 1.5", "NO"]);
    assert_eq!(lines[6], "!! postgres: NOT RUN, PostgreSQL is not installed");
    assert_eq!(lines[7], "!! client: FAILED, it broke");
    assert_eq!((report().missed(), report().unmeasured()), (1, 2));
}

#[test]
fn the_files_are_written_and_need_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    report().write(&folder.path().join("bench")).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join("bench").join(name)).unwrap();

    let json: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    let row = &json["benchmarks"][0]["rows"][0];
    assert_eq!(row["ours"]["rounds"], serde_json::json!([20e3, 21e3, 22e3]));
    assert_eq!((&row["judged"]["median"], &row["met"]), (&serde_json::json!(0.7), &serde_json::json!(true)));
    assert_eq!(row["goal"], serde_json::json!({ "at_least": 0.5 }));
    assert_eq!(json["benchmarks"][1]["missing"], "PostgreSQL is not installed");

    let html = read("report.html");
    // Bars, two latency plots, one growth curve.
    assert_eq!(html.matches("<svg").count(), 4);
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(html.contains("&lt;b&gt;trips&lt;/b&gt; &amp; more"), "text is escaped");
    assert!(html.contains("NOT RUN: PostgreSQL is not installed"));
    assert!(!html.contains("<script") && !html.contains("http:") && !html.contains("https:"));
    assert!(!html.contains("NaN") && !html.contains("inf"), "every point has a place");
}
