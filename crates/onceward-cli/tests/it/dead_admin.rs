//! Dead letters through the receipts API, and `onceward dead --admin`.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::process::{Answer, Process, onceward, send};
use crate::servers::Postgres;

const TOKEN: &str = "0123456789abcdef-operator";
const APPLICATION_TOKEN: &str = "0123456789abcdef-application";

/// A process on the database of a consumer that has given up messages.
struct Stage {
    server: &'static Postgres,
    name: String,
    process: Process,
}

impl Stage {
    fn start() -> Option<Self> {
        let server = Postgres::shared()?;
        let name = server.fresh();
        let url = server.url(&name);
        assert!(onceward(&["migrate", "--messages", "--store", &url]).status().unwrap().success());
        let mut command = onceward(&["serve", "--admin", "127.0.0.1:0", "--log", "error", "--store", &url]);
        command.env("ONCEWARD_ADMIN_TOKEN", TOKEN).env("ONCEWARD_APP_TOKEN", APPLICATION_TOKEN);
        let stage = Self { server, name, process: Process::spawn(command) };
        stage.park("a");
        stage.bury("m-1", "dead", "a", "it timed out");
        stage.bury("m-2", "behind", "a", "");
        stage.bury("m-3", "dead", "b", "no such item");
        Some(stage)
    }

    /// As a consumer writes them: its own tests are in onceward-flows.
    fn bury(&self, id: &str, state: &str, key: &str, error: &str) {
        self.sql(&format!(
            "INSERT INTO onceward_dead_letters (consumer, message_id, part, state, topic, ordering_key, headers, payload,
                tries, error, first_at, last_at)
             VALUES ('shop/stock', '{id}', 0, '{state}', 'orders', '{key}', '{{\"trace\":\"7\"}}', 'the payload', 5, '{error}',
                now() - interval '1 hour', now())"
        ));
    }

    fn park(&self, key: &str) {
        self.sql(&format!(
            "INSERT INTO onceward_sequences (consumer, ordering_key, state, part) VALUES ('shop/stock', '{key}', 'parked', 0)"
        ));
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }

    fn state(&self, id: &str) -> String {
        self.sql(&format!("SELECT state FROM onceward_dead_letters WHERE message_id = '{id}'"))
    }

    fn get_as(&self, token: &str, path: &str) -> Answer {
        send(self.process.address, "GET", path, &[("Authorization", &format!("Bearer {token}"))], "")
    }

    fn get(&self, path: &str, query: &str) -> Answer {
        self.get_as(TOKEN, &format!("{path}?source=shop&consumer=stock{query}"))
    }

    fn post_as(&self, token: &str, path: &str, body: &Value) -> Answer {
        let fields = [("Authorization", &*format!("Bearer {token}")), ("Content-Type", "application/json")];
        send(self.process.address, "POST", path, &fields, &body.to_string())
    }

    fn post(&self, path: &str, more: &Value) -> Answer {
        let mut asked =
            json!({"source": "shop", "consumer": "stock", "by": "ada", "reason": "the clock was wrong"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post_as(TOKEN, path, &asked)
    }

    /// The ids in a list.
    fn listed(&self, query: &str) -> Vec<String> {
        let page = self.get("/v1/dead-letters", query).json();
        let letters = page["dead_letters"].as_array().unwrap_or_else(|| panic!("{page}"));
        letters.iter().map(|letter| letter["message"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn dead_letters_are_listed_with_filters_shown_and_exported() {
    let Some(stage) = Stage::start() else { return };
    assert_eq!(stage.listed(""), ["m-1", "m-2", "m-3"]);
    for (query, expected) in [
        ("&error=timed%20out", &["m-1"][..]),
        ("&ordering_key=a", &["m-1", "m-2"]),
        ("&state=behind", &["m-2"]),
        ("&topic=other", &[]),
        ("&older_than_ms=3600000", &[]),
    ] {
        assert_eq!(stage.listed(query), expected, "{query}");
    }
    assert_eq!(stage.get("/v1/dead-letters", "&state=odd").problem(), (400, "invalid-request".into()));
    // A page at a time.
    let page = stage.get("/v1/dead-letters", "&limit=2").json();
    assert_eq!(page["dead_letters"].as_array().unwrap().len(), 2);
    assert!(page["dead_letters"][0].get("payload").is_none(), "{page}");
    assert_eq!(stage.listed(&format!("&after={}", page["next"])), ["m-3"]);
    let exported = stage.get("/v1/dead-letters", "&contents=true").json();
    assert_eq!(exported["dead_letters"][2]["payload"], "the payload");
    assert_eq!(exported["dead_letters"][2]["headers"], json!({"trace": "7"}));
    let shown = stage.get("/v1/dead-letter", "&message=m-1").json();
    assert_eq!((&shown["error"], &shown["tries"]), (&json!("it timed out"), &json!(5)));
    assert_eq!(shown["payload"], "the payload");
    assert!(shown["first_failed_seconds_ago"].as_u64().unwrap() >= 3_600, "{shown}");
    assert_eq!(stage.get("/v1/dead-letter", "&message=m-9").problem(), (404, "no-dead-letter".into()));
    let other = stage.get_as(TOKEN, "/v1/dead-letters?consumer=stock").json();
    assert_eq!(other["dead_letters"], json!([]), "those of another source");
    // Of all consumers.
    let all = |query: &str| stage.get_as(TOKEN, &format!("/v1/dead-letters{query}"));
    let page = all("?limit=2").json();
    assert_eq!(page["dead_letters"][0]["message"], "m-1");
    assert_eq!(
        (&page["dead_letters"][0]["source"], &page["dead_letters"][0]["consumer"]),
        (&json!("shop"), &json!("stock"))
    );
    let rest = all(&format!("?after={}&contents=true", page["next"])).json();
    assert_eq!(
        (&rest["dead_letters"][0]["message"], &rest["dead_letters"][0]["payload"]),
        (&json!("m-3"), &json!("the payload"))
    );
    assert_eq!(all("?source=shop").problem(), (400, "invalid-request".into()));
}

#[test]
fn decisions_about_one_are_made_once_and_are_in_the_audit() {
    let Some(stage) = Stage::start() else { return };
    let one = |path: &str, id: &str| stage.post(path, &json!({ "message": id }));
    assert_eq!(one("/v1/retry-dead-letter", "m-2").problem(), (409, "not-now".into()));
    assert_eq!(one("/v1/retry-dead-letter", "m-9").problem(), (404, "no-dead-letter".into()));
    assert_eq!(one("/v1/retry-dead-letter", "m-3").status, 204);
    assert_eq!(one("/v1/retry-dead-letter", "m-3").status, 204, "twice is once");
    assert_eq!(stage.state("m-3"), "retry");
    let sequence = json!({"ordering_key": "a"});
    assert_eq!(stage.post("/v1/retry-dead-letter", &sequence).status, 204);
    assert_eq!(stage.sql("SELECT state FROM onceward_sequences"), "draining");
    for odd in [json!({}), json!({"message": "m-1", "ordering_key": "a"})] {
        let refused = stage.post("/v1/retry-dead-letter", &odd).problem();
        assert_eq!(refused, (400, "invalid-request".into()), "{odd}");
    }
    let receipt = |id: &str| {
        let of = format!("SELECT state FROM onceward_receipts WHERE scope = 'shop' AND key = '{id}'");
        stage.sql(&of)
    };
    assert_eq!(one("/v1/discard-dead-letter", "m-3").status, 204);
    assert_eq!(one("/v1/discard-dead-letter", "m-3").problem(), (404, "no-dead-letter".into()));
    assert_eq!((stage.state("m-3").as_str(), receipt("m-3").as_str()), ("", "done"));
    assert_eq!(one("/v1/discard-dead-letter", "m-9").status, 404);
    assert_eq!(receipt("m-9"), "", "the key of a message that is still to come stays free");
    assert_eq!(one("/v1/settle-dead-letter", "m-1").status, 204);
    assert_eq!(one("/v1/settle-dead-letter", "m-1").status, 404);
    assert_eq!((stage.state("m-1").as_str(), receipt("m-1").as_str()), ("", "done"));

    let audit = stage.get_as(TOKEN, "/v1/audit?limit=1000").json();
    let entries = audit["entries"].as_array().unwrap();
    let results = |action: &str| -> Vec<&str> {
        let mut of: Vec<_> = entries.iter().filter(|entry| entry["action"] == action).collect();
        of.sort_by_key(|entry| entry["at_ms"].as_u64());
        of.iter().map(|entry| entry["result"].as_str().unwrap()).collect()
    };
    assert_eq!(results("discard-dead-letter"), ["made", "no-dead-letter", "no-dead-letter"]);
    assert_eq!(results("settle-dead-letter"), ["made", "no-dead-letter"]);
    assert_eq!(results("retry-dead-letter"), ["not-now", "no-dead-letter", "made", "made", "made"]);
    let settled = entries.iter().find(|entry| entry["action"] == "settle-dead-letter").unwrap();
    assert_eq!((&settled["by"], &settled["reason"]), (&json!("ada"), &json!("the clock was wrong")));
    assert_eq!(
        (&settled["scope"], &settled["operation"], &settled["key"]),
        (&json!("shop"), &json!("stock"), &json!("m-1"))
    );
}

#[test]
fn all_that_match_are_changed_a_page_at_a_time() {
    let Some(stage) = Stage::start() else { return };
    for n in 0..25 {
        stage.bury(&format!("t-{n}"), "dead", &format!("t{n}"), "too many");
    }
    let all = |more: &Value| stage.post("/v1/change-dead-letters", more);
    assert_eq!(all(&json!({"change": "discard"})).problem(), (400, "invalid-request".into()));
    let dry = all(&json!({"change": "discard", "error": "too many", "dry_run": true})).json();
    assert_eq!((&dry["matched"], &dry["changed"]), (&json!(25), &json!(0)));
    assert_eq!(stage.listed("&error=too%20many").len(), 25, "nothing was changed");
    let pages = |mut asked: Value| {
        let (mut count, mut pages) = (0, 0);
        loop {
            let page = all(&asked).json();
            count += page["changed"].as_u64().unwrap_or_else(|| panic!("{page}"));
            let Some(next) = page.get("next") else { return (count, pages) };
            asked["after"] = next.clone();
            pages += 1;
        }
    };
    let begun = std::time::Instant::now();
    let paced = json!({"change": "retry", "error": "too many", "pace": 50, "limit": 10});
    assert_eq!(pages(paced), (25, 3));
    assert!(begun.elapsed() >= std::time::Duration::from_millis(500), "25 retries, 50 in a second");
    assert_eq!(stage.state("t-24"), "retry");
    assert_eq!(pages(json!({"change": "discard", "error": "too many", "limit": 10})), (25, 3));
    assert_eq!(pages(json!({"change": "settle", "ordering_key": "b"})), (1, 1));
    // A retry of all begins each sequence with its first.
    assert_eq!(pages(json!({"change": "retry", "all": true})), (1, 1));
    assert_eq!(stage.listed(""), ["m-1", "m-2"]);
    assert_eq!([stage.state("m-1"), stage.state("m-2")], ["retry", "behind"]);
    let audit = stage.get_as(TOKEN, "/v1/audit?limit=1000").json();
    let entries = audit["entries"].as_array().unwrap();
    let of = |how: &str| entries.iter().filter(|entry| entry["how"] == how).count();
    assert_eq!([of("retry"), of("discard"), of("settle")], [6, 4, 2], "each page, and no dry run");
}

#[test]
fn operators_only_and_only_where_messages_are() {
    let Some(stage) = Stage::start() else { return };
    for (token, problem) in [("wrong", (401, "unauthorized")), (APPLICATION_TOKEN, (403, "wrong-token"))] {
        let expected = (problem.0, problem.1.to_owned());
        for path in ["/v1/dead-letters?consumer=stock", "/v1/dead-letter?consumer=stock&message=m-1"] {
            assert_eq!(stage.get_as(token, path).problem(), expected, "{path}");
        }
        for path in ["retry-dead-letter", "settle-dead-letter", "discard-dead-letter", "change-dead-letters"]
        {
            assert_eq!(
                stage.post_as(token, &format!("/v1/{path}"), &json!({})).problem(),
                expected,
                "{path}"
            );
        }
    }
    let folder = tempdir().unwrap();
    let embedded = Process::serve(folder.path());
    let refused = embedded.get("/v1/dead-letters?consumer=stock");
    assert_eq!(refused.problem(), (409, "no-messages".into()), "{refused:?}");
    let server = Postgres::shared().unwrap();
    let store = server.url(&server.fresh());
    let mut unprepared =
        Process::spawn(onceward(&["serve", "--admin", "127.0.0.1:0", "--log", "error", "--store", &store]));
    assert_eq!(unprepared.get("/v1/dead-letters?consumer=stock").problem(), (409, "no-messages".into()));
    assert!(onceward(&["migrate", "--messages", "--store", &store]).status().unwrap().success());
    let found = unprepared.get("/v1/dead-letters?consumer=stock").json();
    assert_eq!(found["dead_letters"], json!([]), "without a restart");
    unprepared.stop();
}

/// The same commands, on the database and through the receipts API.
#[test]
fn the_command_says_the_same_through_an_admin_listener() {
    let Some(stage) = Stage::start() else { return };
    let (url, admin) = (stage.server.url(&stage.name), format!("http://{}", stage.process.address));
    let run = |words: &[&str], is_remote: bool| {
        let mut command = onceward(&[&["dead", "--source", "shop", "--consumer", "stock"], words].concat());
        if is_remote {
            command.args(["--admin", &admin, "--token", TOKEN, "--by", "ada"]);
        } else {
            command.args(["--store", &url]);
        }
        let ended = command.output().unwrap();
        let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (ended.status.code().unwrap(), text)
    };
    for words in [
        &["list"][..],
        &["list", "--limit", "2"],
        &["list", "--key", "a", "--limit", "2"],
        &["show", "m-1"],
        &["export", "--error", "timed"],
        &["export", "--limit", "2"],
        &["discard", "--all", "--error", "no such", "--dry-run"],
        &["retry", "--all", "--dry-run"],
    ] {
        // The ages are counted by the second.
        let same = (0..5).any(|_| run(words, true) == run(words, false));
        assert!(same, "{words:?}: {:?} and {:?}", run(words, true), run(words, false));
    }
    // Of all consumers.
    let of_all = |words: &[&str], way: [&str; 2]| {
        let ended = onceward(&[&["dead"], words, &way, &["--token", TOKEN]].concat()).output().unwrap();
        let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (ended.status.code().unwrap(), text)
    };
    for words in [&["list"][..], &["list", "--limit", "2"], &["export", "--error", "timed"]] {
        let remote = || of_all(words, ["--admin", &admin]);
        let same = (0..5).any(|_| remote() == of_all(words, ["--store", &url]));
        assert!(same && remote().0 == 0 && remote().1.contains("stock"), "{words:?}: {:?}", remote());
    }
    assert_eq!(of_all(&["show", "m-1"], ["--admin", &admin]).0, 2);
    for (words, code) in [
        (&["show", "m-9"][..], 1),
        (&["retry", "m-2"], 1),
        (&["discard", "m-9"], 1),
        (&["retry-sequence", "nosuch"], 1),
        (&["retry-sequence", "a"], 0),
        (&["settle", "m-3"], 0),
    ] {
        let (ended, text) = run(words, true);
        assert_eq!(ended, code, "{words:?}: {text}");
    }
    assert_eq!(stage.state("m-1"), "retry");
    assert_eq!(stage.state("m-3"), "");
    for n in 0..7 {
        stage.bury(&format!("t-{n}"), "dead", &format!("t{n}"), "too many");
    }
    let discard = ["discard", "--all", "--error", "too many", "--limit", "3"];
    assert_eq!(run(&discard, true), (0, "3 discarded\n".into()));
    assert_eq!(run(&["retry", "--all", "--error", "too many"], true), (0, "4 will be tried again\n".into()));
    assert_eq!(run(&["settle", "--all", "--topic", "orders"], true), (0, "6 settled\n".into()));
    assert_eq!(stage.listed(""), [""; 0]);
}
