//! `onceward dead` and `onceward migrate --messages` on a real database.

use onceward_stores::rusqlite::Connection;

use crate::process::onceward;
use crate::servers::{MariaDb, Postgres};

/// Runs a command on a database, and returns its exit code and all that it prints.
fn run(url: &str, words: &[&str]) -> (i32, String) {
    let ended = onceward(words).env("ONCEWARD_STORE", url).output().unwrap();
    let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (ended.status.code().unwrap(), text)
}

#[test]
fn dead_letters_are_listed_shown_exported_retried_and_discarded() {
    let Some(server) = Postgres::shared() else { return };
    let name = server.fresh();
    let url = server.url(&name);
    let dead = |words: &[&str]| run(&url, &[&["dead", "--consumer", "stock"], words].concat());
    let (code, text) = dead(&["list"]);
    assert!(code == 2 && text.contains("onceward migrate --messages"), "{text}");
    let (code, text) = run(&url, &["migrate", "--messages"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(dead(&["list"]), (0, "No dead letters.\n".into()));
    // As a consumer writes them: its own tests are in onceward-flows.
    let insert = |id: &str, state: &str, key: &str, error: &str| {
        server.sql(&name, &format!(
            "INSERT INTO onceward_dead_letters (consumer, message_id, part, state, topic, ordering_key, headers, payload,
                tries, error, first_at, last_at)
             VALUES ('outbox/stock', '{id}', 0, '{state}', 'orders', '{key}', '{{\"trace\":\"7\"}}', 'the payload', 5, '{error}',
                now() - interval '1 hour', now())"
        ));
    };
    server.sql(&name, "INSERT INTO onceward_sequences (consumer, ordering_key, state, part) VALUES ('outbox/stock', 'a', 'parked', 0)");
    insert("m-1", "dead", "a", "it timed out");
    insert("m-2", "behind", "a", "");
    insert("m-3", "dead", "b", "no such item");

    let (_, text) = dead(&["list"]);
    assert!(
        ["m-1", "m-2", "m-3", "it timed out", "onceward dead show m-1"]
            .iter()
            .all(|part| text.contains(part)),
        "{text}"
    );
    let (_, text) = dead(&["list", "--error", "timed"]);
    assert!(text.contains("m-1") && !text.contains("m-3"), "{text}");
    // The same syntax as `onceward receipts`.
    assert_eq!(dead(&["list", "--older-than", "1h"]).1, "No dead letters.\n");
    let (code, text) = dead(&["list", "--older-than", "0s"]);
    assert!(code == 0 && text.contains("m-1"), "{text}");
    let (code, text) = dead(&["show", "m-1"]);
    let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &shown["payload"], &shown["headers"]["trace"]),
        (0, &"the payload".into(), &"7".into())
    );
    assert_eq!(dead(&["show", "m-9"]).0, 1);
    let (_, text) = dead(&["export"]);
    let exported: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exported.len(), 3);
    // All of them, however many there are, unless a limit is given.
    let many = "INSERT INTO onceward_dead_letters (consumer, message_id, part, state, topic, headers, payload, tries, error,
            first_at, last_at)
        SELECT 'outbox/stock', 'many-' || n, 0, 'dead', 'many', '{}', 'x', 1, 'too many', now(), now()
        FROM generate_series(1, 250) AS n";
    server.sql(&name, many);
    assert_eq!(dead(&["export", "--topic", "many"]).1.lines().count(), 250);
    assert_eq!(dead(&["export", "--topic", "many", "--limit", "7"]).1.lines().count(), 7);
    assert!(
        dead(&["list", "--topic", "many"]).1.contains("more; see --limit"),
        "the list says that it was cut"
    );
    // Discarded and settled by what they have in common; never without saying so.
    assert_eq!(dead(&["discard"]).0, 2);
    let (code, text) = dead(&["discard", "--all", "--error", "too many", "--limit", "100"]);
    assert!(code == 0 && text.contains("100 discarded"), "{text}");
    let (code, text) = dead(&["settle", "--all", "--topic", "many"]);
    assert!(code == 0 && text.contains("150 settled"), "{text}");
    assert_eq!(dead(&["export", "--topic", "many"]).1, "");
    server.sql(&name, "DELETE FROM onceward_receipts");

    let (code, text) = dead(&["retry", "m-2"]);
    assert!(code == 1 && text.contains("it waits behind `m-1`"), "{text}");
    assert_eq!(dead(&["retry-sequence", "a"]).0, 0);
    assert_eq!(server.sql(&name, "SELECT state FROM onceward_sequences"), "draining");
    assert_eq!(dead(&["discard", "m-3"]).0, 0);
    assert_eq!(dead(&["discard", "m-3"]).0, 1);
    let closed = "SELECT scope || ' ' || operation || ' ' || key || ' ' || state FROM onceward_receipts";
    assert_eq!(server.sql(&name, closed), "outbox stock m-3 done");
    insert("m-4", "dead", "c", "no such item");
    assert_eq!(dead(&["settle", "m-4"]).0, 0);
    assert_eq!(dead(&["settle", "m-4"]).0, 1);
    let settled = "SELECT scope || ' ' || operation || ' ' || state FROM onceward_receipts WHERE key = 'm-4'";
    assert_eq!(server.sql(&name, settled), "outbox stock done");
    for words in
        [&["show", "m-1"][..], &["discard", "m-1"], &["retry", "--all"], &["list", "--source", "shop"]]
    {
        let (code, text) = run(&url, &[&["dead"], words].concat());
        assert!(code == 2 && text.contains("--consumer is missing"), "{words:?}: {text}");
    }
}

/// What is dead here: an operator need not know which consumers there are.
#[test]
fn without_a_consumer_the_list_is_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let on_sqlite = |sql: &str| Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    let now = "strftime('%s', 'now') * 1000000";
    list_two_consumers(&format!("sqlite:{}", file.display()), ["x'78'", now], on_sqlite);
    if let Some(server) = Postgres::shared() {
        let name = server.fresh();
        list_two_consumers(&server.url(&name), ["'x'", "now()"], |sql| drop(server.sql(&name, sql)));
    }
    if let Some(server) = MariaDb::shared() {
        let name = server.fresh();
        let run = |sql: &str| drop(server.sql(&name, sql));
        list_two_consumers(&server.url(&name), ["x'78'", "UTC_TIMESTAMP(6)"], run);
    }
}

/// `sql` runs a statement; `payload` and `now` are values in its dialect.
fn list_two_consumers(url: &str, [payload, now]: [&str; 2], sql: impl Fn(&str)) {
    assert_eq!(run(url, &["migrate", "--messages"]).0, 0);
    assert_eq!(run(url, &["dead", "list"]), (0, "No dead letters.\n".into()));
    for (consumer, id) in [("outbox/stock", "m-1"), ("shop/stock", "m-1"), ("shop/mail", "m-2")] {
        sql(&format!(
            "INSERT INTO onceward_dead_letters (consumer, message_id, part, state, topic, headers, payload, tries, error,
                first_at, last_at)
             VALUES ('{consumer}', '{id}', 0, 'dead', 'orders', '{{}}', {payload}, 5, 'of {consumer}', {now}, {now})"
        ));
    }
    let (code, text) = run(url, &["dead", "list"]);
    assert_eq!(code, 0, "{text}");
    for row in [
        ["outbox", "stock", "dead", "m-1"],
        ["shop", "stock", "dead", "m-1"],
        ["shop", "mail", "dead", "m-2"],
    ] {
        let is_row = |line: &str| line.split_whitespace().take(4).eq(row);
        assert!(text.lines().any(is_row), "{row:?}: {text}");
    }
    assert!(text.contains("onceward dead show --source outbox --consumer stock m-1"), "{text}");
    let (_, text) = run(url, &["dead", "list", "--error", "of shop"]);
    assert!(text.contains("mail") && !text.contains("outbox"), "{text}");
    let (_, text) = run(url, &["dead", "list", "--limit", "2"]);
    assert!(text.contains("more; see --limit") && !text.contains("mail"), "{text}");
    let (_, text) = run(url, &["dead", "export"]);
    let exported: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whose: Vec<_> = exported.iter().map(|letter| (&letter["source"], &letter["consumer"])).collect();
    let expected = [("outbox", "stock"), ("shop", "stock"), ("shop", "mail")];
    assert!(whose.iter().zip(expected).all(|(found, (source, consumer))| {
        *found == (&serde_json::json!(source), &serde_json::json!(consumer))
    }));
    assert_eq!(exported.len(), 3);
    let (_, text) = run(url, &["dead", "list", "--source", "shop", "--consumer", "stock"]);
    assert!(text.contains("of shop/stock") && !text.contains("of shop/mail"), "{text}");
}

#[test]
fn messages_are_possible_in_every_database() {
    let folder = tempfile::tempdir().unwrap();
    let mut urls = vec![format!("sqlite:{}", folder.path().join("app.db").display())];
    if let Some(server) = MariaDb::shared() {
        urls.push(server.url(&server.fresh()));
    }
    for url in urls {
        let dead = |words: &[&str]| run(&url, &[&["dead", "--consumer", "stock"], words].concat());
        let (code, text) = dead(&["list"]);
        assert!(code == 2 && text.contains("onceward migrate --messages"), "{text}");
        let (code, text) = run(&url, &["migrate", "--messages"]);
        assert_eq!(code, 0, "{text}");
        assert_eq!(dead(&["list"]), (0, "No dead letters.\n".into()));
        assert_eq!(dead(&["retry", "m-1"]).0, 1);
    }
    let (code, text) = run("redis://localhost", &["migrate", "--messages"]);
    assert!(code == 1 && text.contains("messages are kept in a database"), "{text}");
}
