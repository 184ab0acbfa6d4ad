//! The admin listener: health, readiness, metrics, access and the receipts API.

pub mod api;
mod auth;
mod example;

use std::collections::{BTreeSet, HashSet};

use tempfile::tempdir;

use crate::process::{Process, onceward};

#[test]
fn health_readiness_and_metrics_are_served() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    assert_eq!(process.get("/healthz").status, 200);
    let claim = serde_json::json!({"scope": "s", "operation": "o", "key": "k"});
    assert_eq!(process.post("/v1/claim", &claim).status, 201);
    let metrics = process.get("/metrics");
    assert!(metrics.field("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "onceward_claims_total 1",
        "onceward_replays_total 0",
        "onceward_store_call_seconds_count{call=\"swap\"} 1",
        "onceward_store_batch_records_bucket{call=\"swap\",le=\"1\"} 1",
        "onceward_settlements_total{found=\"done\"} 0",
    ] {
        assert!(metrics.body.lines().any(|found| found == line), "{line}\nis not in\n{}", metrics.body);
    }
    is_prometheus_text(&metrics.body);
    // Last, because it tries a write, which counts too.
    let ready = process.get("/readyz");
    assert_eq!((ready.status, &ready.json()["store"]), (200, &"ready".into()));
}

/// Every line is a type or a sample of the type before it, and no sample comes twice.
fn is_prometheus_text(text: &str) {
    let mut family = "";
    let mut seen = HashSet::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            family = kind.split(' ').next().unwrap();
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect(line);
        assert!(sample.starts_with(family) && !family.is_empty(), "{line} is not of {family}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(sample), "{line} is there twice");
    }
    assert!(text.ends_with('\n'));
}

#[test]
fn invalid_admin_settings_are_refused_at_start() {
    let folder = tempdir().unwrap();
    let store = format!("embedded:{}", folder.path().join("receipts").display());
    for (args, says) in [
        (vec!["serve", "--admin", "0.0.0.0:0", "--store", &store], "ONCEWARD_ADMIN_TOKEN"),
        (vec!["serve", "--admin", "127.0.0.1:0", "--admin-token", "short", "--store", &store], "at least 16"),
        (vec!["serve", "--admin", "127.0.0.1:0", "--store", "memory:"], "forgets its receipts"),
        (vec!["serve", "--admin", "127.0.0.1:0", "--store", "elsewhere:"], "no store is known"),
        (
            vec!["serve", "--admin", "192.0.2.1:1", "--admin-token", "0123456789abcdef", "--store", &store],
            "cannot listen",
        ),
        (vec!["serve", "--log", "[", "--store", &store], "--log"),
    ] {
        let ended = onceward(&args).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(ended.stdout.is_empty());
    }
}

/// The metrics that are served and the metrics in the documentation are the same.
#[test]
fn every_metric_is_explained_to_operators() {
    let manual = include_str!("../../../../docs/operations.md");
    let explained: BTreeSet<&str> =
        manual.split('`').skip(1).step_by(2).filter(|word| word.starts_with("onceward_")).collect();
    let folder = tempdir().unwrap();
    let gateway = Process::gateway(folder.path());
    let metrics = gateway.get("/metrics").body;
    is_prometheus_text(&metrics);
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let served: BTreeSet<&str> = types.map(|kind| kind.split(' ').next().unwrap()).collect();
    assert_eq!(served, explained);
}
