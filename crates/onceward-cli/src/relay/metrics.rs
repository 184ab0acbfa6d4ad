//! The metrics of a relay, as Prometheus text: progress, lag, and the age of the oldest message.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use onceward_flows::postgres::FlowTables;
use onceward_flows::{Relay, RelayCounts};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The backlog is counted at most this often, however many ask: counting reads the whole table.
const BACKLOG_AGE_MAX: Duration = Duration::from_secs(5);

/// `GET /metrics`.
pub fn router(relay: &Relay, tables: &FlowTables) -> Router {
    let (relay, tables, counted) = (relay.clone(), tables.clone(), Arc::new(Remembered::default()));
    let metrics = move || {
        let (relay, tables, counted) = (relay.clone(), tables.clone(), counted.clone());
        async move {
            let backlog = counted.recent(async || tables.backlog().await.ok()).await;
            let backlog = backlog.map(|backlog| (backlog.messages, backlog.oldest.unwrap_or_default()));
            let headers = [("content-type", "text/plain; version=0.0.4")];
            (headers, text(&relay.counts(), backlog))
        }
    };
    Router::new().route("/metrics", get(metrics))
}

/// What was found last, and when. Those that ask at the same time wait for one answer.
struct Remembered<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Remembered<T> {
    /// What was found a short time ago, or what is found now. That nothing was found is not remembered.
    async fn recent(&self, find: impl AsyncFnOnce() -> Option<T>) -> Option<T> {
        let mut last = self.0.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < BACKLOG_AGE_MAX
        {
            return Some(found.clone());
        }
        *last = find().await.map(|found| (Instant::now(), found));
        last.as_ref().map(|(_, found)| found.clone())
    }
}

/// `backlog` is how many messages wait and for how long the oldest has; `None` if the database does not say.
fn text(counts: &RelayCounts, backlog: Option<(u64, Duration)>) -> String {
    let mut out = String::new();
    let mut line = |name: &str, kind: &str, help: &str, value: String| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let counters = [
        ("published", "Messages that the broker has confirmed.", counts.published),
        (
            "failed",
            "Messages that the broker has refused or not confirmed; each is tried again.",
            counts.failed,
        ),
        ("reads", "Looks at the database.", counts.reads),
        (
            "takeovers",
            "Groups of lanes taken over from a relay that ended without warning.",
            counts.takeovers,
        ),
    ];
    for (name, help, value) in counters {
        line(&format!("onceward_relay_{name}_total"), "counter", help, value.to_string());
    }
    let up = u8::from(backlog.is_some()).to_string();
    line("onceward_outbox_up", "gauge", "Whether the database of the outbox answers.", up);
    if let Some((messages, oldest)) = backlog {
        let waiting = "Committed messages that are not published yet.";
        line("onceward_outbox_messages", "gauge", waiting, messages.to_string());
        let age = "The age of the oldest message that is not published yet; 0 if there is none.";
        line("onceward_outbox_oldest_seconds", "gauge", age, format!("{:.3}", oldest.as_secs_f64()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_scrapes_count_the_backlog_once() {
        let (remembered, looks) = (Remembered::default(), std::cell::Cell::new(0));
        let look = async |found: Option<u32>| {
            let find = async || {
                looks.set(looks.get() + 1);
                tokio::time::sleep(Duration::from_millis(10)).await;
                found
            };
            remembered.recent(find).await
        };
        assert_eq!(look(None).await, None);
        let both = tokio::join!(look(Some(1)), look(Some(2)));
        assert_eq!((both, looks.get()), ((Some(1), Some(1)), 2), "a failure is not remembered");
        tokio::time::advance(BACKLOG_AGE_MAX.saturating_sub(Duration::from_millis(20))).await;
        assert_eq!((look(Some(3)).await, looks.get()), (Some(1), 2));
        tokio::time::advance(Duration::from_millis(20)).await;
        assert_eq!((look(Some(4)).await, looks.get()), (Some(4), 3));
    }

    #[test]
    fn a_database_that_is_down_is_told_from_an_empty_outbox() {
        let counts = RelayCounts::default();
        let empty = text(&counts, Some((0, Duration::ZERO)));
        assert!(
            empty.contains("\nonceward_outbox_messages 0\n") && empty.contains("\nonceward_outbox_up 1\n")
        );
        let down = text(&counts, None);
        assert!(
            !down.contains("onceward_outbox_messages") && down.contains("\nonceward_outbox_up 0\n"),
            "{down}"
        );
    }
}
