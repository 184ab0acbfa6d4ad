//! What operators do about the receipts of a gateway: find, settle and erase them, one or many, on the record.

use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::stage::{Gateway, Home, Received, Reply, Service};
use crate::process::{eventually, onceward, send};

const TENANTS: &str = "[[route]]\npath = \"/charges\"\nscope = \"header:X-Tenant\"\n";

/// Charges, and closes the connection without an answer for keys that begin with `lost`.
fn service() -> Service {
    Service::start(|request: &Received| {
        if request.key().contains("lost") {
            return Reply::Raw(Vec::new());
        }
        Reply::created(format!("charged for {}", request.field("x-tenant").unwrap_or("nobody")))
    })
}

fn charge(gateway: &Gateway, tenant: &str, key: &str) -> crate::process::Answer {
    gateway.post("/charges", &[("Idempotency-Key", key), ("X-Tenant", tenant)], "{}")
}

/// Runs `onceward receipts` with these words.
fn say(gateway: &Gateway, words: &[&str]) -> (i32, String, String) {
    let mut command = onceward(&["receipts", "--admin", &format!("http://{}", gateway.admin)]);
    let Output { status, stdout, stderr } = command.args(words).stdin(Stdio::null()).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn listed(gateway: &Gateway, words: &[&str]) -> Vec<Value> {
    let (code, out, err) = say(gateway, &[&["list", "--json"], words].concat());
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

fn keys(receipts: &[Value]) -> Vec<&str> {
    let mut keys: Vec<&str> = receipts.iter().map(|receipt| receipt["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn receipts_are_found_by_tenant_error_and_age_and_say_who_holds_them() {
    let (home, service) = (Home::new(), service());
    home.write_config(TENANTS);
    let gateway = home.start(&service.url());
    for tenant in ["acme", "globex"] {
        assert_eq!(charge(&gateway, tenant, &format!("{tenant}-1")).status, 201);
    }
    assert_eq!(charge(&gateway, "acme", "acme-lost").status, 504);
    assert_eq!(keys(&listed(&gateway, &["--scope-from", "X-Tenant: acme"])), ["acme-1", "acme-lost"]);
    assert_eq!(keys(&listed(&gateway, &["--scope-from", "X-Tenant: globex"])), ["globex-1"]);
    assert!(listed(&gateway, &["--scope-from", "X-Tenant: nobody"]).is_empty());
    let (code, _, err) = say(&gateway, &["list", "--scope-from", "X-Other: acme"]);
    assert!(code == 1 && err.contains("no route takes its scope from this"), "{err}");

    let unknown = listed(&gateway, &["--state", "unknown", "--younger-than", "1h"]);
    assert_eq!(keys(&unknown), ["acme-lost"]);
    let unknown = &unknown[0];
    assert_eq!((&unknown["tries"], unknown["attempt"].as_str().unwrap().len()), (&json!(1), 8));
    assert!(unknown["created_ms_ago"].is_u64() && unknown["updated_ms_ago"].is_u64(), "{unknown}");
    let error = unknown["last_error"].as_str().unwrap();
    assert_eq!(keys(&listed(&gateway, &["--error", error])), ["acme-lost"]);
    assert!(listed(&gateway, &["--older-than", "1h"]).is_empty());
    let attempt = service.received().last().unwrap().field("onceward-attempt").unwrap().replace('-', "");
    assert!(attempt.starts_with(unknown["attempt"].as_str().unwrap()), "{attempt}: {unknown}");

    // A claim through the API shows its kind of owner, and no more of its attempt than that.
    let claim = json!({"scope": "s", "operation": "ship", "key": "k"}).to_string();
    let json_body = [("Content-Type", "application/json")];
    let claimed = send(gateway.admin, "POST", "/v1/claim", &json_body, &claim).json();
    let (_, shown, _) = say(&gateway, &["show", "s", "ship", "k"]);
    let attempt = &claimed["attempt"].as_str().unwrap().replace('-', "")[..8];
    assert!(
        shown.contains(&format!("held by    a claim through the receipts API, attempt {attempt}…")),
        "{shown}"
    );
}

#[test]
fn an_erased_answer_says_its_status_and_a_tenant_is_erased_as_a_whole() {
    let (home, service) = (Home::new(), service());
    home.write_config(TENANTS);
    let gateway = home.start(&service.url());
    for key in ["one", "two"] {
        assert_eq!(charge(&gateway, "acme", key).status, 201);
    }
    assert_eq!(charge(&gateway, "globex", "one").status, 201);
    charge(&gateway, "acme", "lost");
    let tenant = ["--where", "scope-from=X-Tenant: acme"];
    let (code, _, err) = say(&gateway, &[&["erase", "--yes"], &tenant[..]].concat());
    assert!(code == 1 && err.contains("--reason"), "{err}");
    let (code, out, _) = say(&gateway, &[&["erase", "--dry-run"], &tenant[..]].concat());
    assert_eq!((code, out.as_str()), (0, "3 receipts would be erased. Nothing was changed.\n"));
    assert_eq!(charge(&gateway, "acme", "one").body, "charged for acme");

    let why = ["--yes", "--by", "alice", "--reason", "privacy request 4711"];
    let (code, out, err) = say(&gateway, &[&["erase"], &tenant[..], &why[..]].concat());
    assert_eq!((code, out.as_str()), (0, "3 of 3 receipts were erased.\n"), "{err}");
    assert!(err.contains("audit: 3 of 3 erased, by alice: privacy request 4711"), "{err}");
    let retry = charge(&gateway, "acme", "one");
    assert_eq!(
        (retry.problem(), &retry.json()["original_status"]),
        ((409, "response-not-stored".into()), &json!(201))
    );
    assert_eq!(
        charge(&gateway, "acme", "lost").problem(),
        (409, "outcome-unknown".into()),
        "it is still unknown"
    );
    assert_eq!(charge(&gateway, "globex", "one").body, "charged for globex");
    assert_eq!(service.effects(), 4, "nothing ran again");

    // Only this frees the key.
    let scope = listed(&gateway, &["--key", "two"])[0]["scope"].as_str().unwrap().to_owned();
    let id = [scope.as_str(), "POST /charges", "two"];
    let (code, out, err) = say(&gateway, &[&["erase", "--reopen", "--yes"], &id[..]].concat());
    assert!(code == 0 && out.contains("may run again"), "{out} {err}");
    assert_eq!(charge(&gateway, "acme", "two").status, 201);
    assert_eq!(service.effects(), 5);

    let (_, out, _) = say(&gateway, &["audit", "--json"]);
    let audit: Vec<Value> = serde_json::from_str(&out).unwrap();
    assert_eq!(audit.len(), 4, "{out}");
    assert_eq!(
        (&audit[0]["action"], &audit[0]["how"], &audit[0]["key"]),
        (&json!("erase"), &json!("reopen"), &json!("two"))
    );
    let of_alice =
        audit.iter().filter(|entry| entry["by"] == "alice" && entry["reason"] == "privacy request 4711");
    assert_eq!(of_alice.count(), 3);
    assert!(audit.iter().all(|entry| entry["result"] == "made"), "{out}");
    assert!(listed(&gateway, &[]).iter().all(|receipt| receipt["scope"] != "onceward"), "the audit is apart");
}

#[test]
fn many_unknown_outcomes_are_settled_at_once_and_the_record_outlives_the_process() {
    let (home, service) = (Home::new(), service());
    let gateway = home.start_with(&service.url(), &["--unknown-after", "1h"]);
    for number in 0..6 {
        gateway.charge(&format!("lost-{number}"), "{}");
    }
    gateway.post("/refunds", &[("Idempotency-Key", "lost-refund")], "{}");
    let window = ["--where", "operation=POST /charges", "--where", "younger-than=2h"];
    let (_, out, _) = say(&gateway, &[&["settle", "--not-done", "--dry-run"], &window[..]].concat());
    assert_eq!(out, "6 receipts would be settled as not done. Nothing was changed.\n");
    // Too early: what was sent may still take effect.
    let why = ["--yes", "--pace", "1000", "--by", "bob", "--reason", "the provider was down from 2 to 3"];
    let (code, out, err) = say(&gateway, &[&["settle", "--not-done"], &window[..], &why[..]].concat());
    assert_eq!((code, out.as_str()), (1, "0 of 6 receipts were settled as not done.\n"));
    assert!(err.contains("may still take effect"), "{err}");
    let (code, out, err) =
        say(&gateway, &[&["settle", "--not-done", "--force"], &window[..], &why[..]].concat());
    assert_eq!((code, out.as_str()), (0, "6 of 6 receipts were settled as not done.\n"), "{err}");
    let answer = ["--done", "--status", "201", "--body", "{}", "--where", "key=lost-refund"];
    let (code, out, err) = say(&gateway, &[&["settle"], &answer[..], &why[..]].concat());
    assert_eq!((code, out.as_str()), (0, "1 of 1 receipts were settled as done.\n"), "{err}");
    gateway.kill();

    let gateway = home.start(&service.url());
    let (_, out, _) = say(&gateway, &["audit", "--json", "--limit", "100"]);
    let audit: Vec<Value> = serde_json::from_str(&out).unwrap();
    let made =
        |how: &str| audit.iter().filter(|entry| entry["how"] == how && entry["result"] == "made").count();
    assert_eq!((made("not done, by force"), made("done"), made("not done")), (6, 1, 0), "{out}");
    assert_eq!(audit.iter().filter(|entry| entry["result"] == "may-still-happen").count(), 6, "{out}");
    assert!(audit.iter().all(|entry| entry["by"] == "bob" && entry["fence"].is_u64()), "{out}");
    let (_, table, _) = say(&gateway, &["audit"]);
    assert!(table.contains("the provider was down from 2 to 3"), "{table}");
    // Nobody can write entries of their own.
    let forged = json!({"scope": "onceward", "operation": "audit", "key": "k"}).to_string();
    let forged = send(gateway.admin, "POST", "/v1/claim", &[("Content-Type", "application/json")], &forged);
    assert_eq!(forged.problem(), (400, "invalid-request".into()));
}

/// Also where nothing carries the input of the intent, and after it is done.
#[test]
fn every_receipt_shows_how_often_it_was_tried() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    // The first two times it breaks off.
    let service = Service::start(move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 | 1 => Reply::Raw(Vec::new()),
        _ => Reply::created("{}"),
    });
    let home = Home::new();
    let gateway = home.start(&service.url());
    for (status, state, tries) in [(504, "unknown", 1), (504, "unknown", 2), (201, "done", 3)] {
        assert_eq!(gateway.charge("k", "{}").status, status);
        let receipt = &listed(&gateway, &["--key", "k"])[0];
        assert_eq!((&receipt["state"], &receipt["tries"]), (&json!(state), &json!(tries)));
        if status == 504 {
            let scope = receipt["scope"].as_str().unwrap();
            let settled = ["settle", scope, "POST /charges", "k", "--not-done", "--force", "--yes"];
            let (code, _, err) = say(&gateway, &settled);
            assert_eq!(code, 0, "{err}");
        }
    }
    assert_eq!(service.effects(), 3);
}

#[test]
fn unknown_outcomes_are_a_gauge_that_survives_a_restart_and_a_line_in_the_log() {
    let (home, service) = (Home::new(), service());
    let log = home.folder.path().join("log");
    let start = || {
        let store = format!("embedded:{}", home.folder.path().join("receipts").display());
        let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", &store]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--sweep-every", "50ms"]);
        command.args(["--unknown-after", "1ms", "--config"]).arg(home.config());
        command.stderr(std::fs::File::create(&log).unwrap());
        Gateway::spawn(command)
    };
    // Nothing that was sent is awaited, so an unknown outcome may be given up at once.
    home.write_config("[defaults]\nanswer_timeout = \"1s\"\n");
    let gateway = start();
    let fields = [("Idempotency-Key", "lost-1"), ("X-Request-Id", "req-4711")];
    assert_eq!(gateway.post("/charges", &fields, "{}").status, 504);
    let hash = blake3::hash(b"lost-1").to_hex()[..12].to_owned();
    let line = eventually("the warning", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().find(|line| line.contains("an outcome is unknown")).map(str::to_owned)
    });
    let scope = &listed(&gateway, &["--key", "lost-1"])[0]["scope"];
    for part in ["WARN", &hash, "POST /charges", "req-4711", scope.as_str().unwrap()] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert!(!line.contains("lost-1"), "the key itself is in {line}");
    gateway.kill();

    // A new process has counted nothing, and knows. What nobody settles becomes dead, and is still unknown.
    let gateway = start();
    let unknown = || {
        gateway.metric("onceward_unknown{state=\"unknown\"}")
            + gateway.metric("onceward_unknown{state=\"dead\"}")
    };
    assert!((unknown() - 1.0).abs() < f64::EPSILON);
    assert!(gateway.metric("onceward_unknown_oldest_seconds") > 0.0);
    let dead = eventually("dead", || listed(&gateway, &["--state", "dead"]).pop());
    assert!(dead["last_error"].as_str().unwrap().contains("request id req-4711"), "{dead}");
    let id = [dead["scope"].as_str().unwrap(), "POST /charges", "lost-1"];
    let (code, _, err) = say(&gateway, &[&["dead", "retry"], &id[..]].concat());
    assert!(code == 1 && err.contains("may have taken effect"), "{err}");
    let all = ["dead", "retry", "--where", "operation=POST /charges", "--yes", "--reason", "again"];
    let (code, _, err) = say(&gateway, &all);
    assert!(code == 1 && err.contains("1 receipts were refused"), "{err}");
    assert_eq!(service.effects(), 1);
    let settle =
        ["settle", "--not-done", "--where", "state=dead", "--yes", "--reason", "the provider says no"];
    let (code, _, err) = say(&gateway, &settle);
    assert_eq!(code, 0, "{err}");
    gateway.post("/charges", &fields, "{}");
    assert_eq!(service.effects(), 2, "the next retry runs");
}

#[test]
fn applications_and_operators_have_tokens_of_their_own() {
    let (home, service) = (Home::new(), service());
    let (app, operator) = ("application-0123456789", "operator-0123456789abc");
    let tokens = ["--admin-token", operator, "--app-token", app];
    let gateway = home.start_with(&service.url(), &tokens);
    let call = |token: &str, path: &str, body: &Value| {
        let bearer = format!("Bearer {token}");
        let fields = [("Content-Type", "application/json"), ("Authorization", bearer.as_str())];
        send(gateway.admin, if body.is_null() { "GET" } else { "POST" }, path, &fields, &body.to_string())
    };
    let claim = json!({"scope": "s", "operation": "ship", "key": "k"});
    let claimed = call(app, "/v1/claim", &claim);
    assert_eq!(claimed.status, 201);
    let ticket = json!({ "ticket": claimed.json()["ticket"] });
    assert_eq!(call(app, "/v1/unknown", &ticket).status, 204);
    for path in [
        "/v1/settle",
        "/v1/erase",
        "/v1/erase-matching",
        "/v1/cancel",
        "/v1/retry-dead",
        "/v1/redrive-dead",
        "/v1/discard-dead",
    ] {
        assert_eq!(call(app, path, &json!({})).problem(), (403, "wrong-token".into()), "{path}");
    }
    for path in ["/v1/receipts", "/v1/receipt?scope=s&operation=ship&key=k", "/v1/audit", "/v1/scopes?from=a"]
    {
        assert_eq!(call(app, path, &Value::Null).problem(), (403, "wrong-token".into()), "{path}");
        assert_eq!(call("guessed-0123456789abc", path, &Value::Null).status, 401, "{path}");
    }
    assert_eq!(call(operator, "/v1/receipts", &Value::Null).status, 200);
    for path in ["/v1/claim", "/v1/renew", "/v1/complete", "/v1/release", "/v1/unknown"] {
        assert_eq!(call(operator, path, &json!({})).problem(), (403, "wrong-token".into()), "{path}");
    }
    for (flags, says) in [
        (&["--app-token", app][..], "ONCEWARD_ADMIN_TOKEN"),
        (&["--app-token", app, "--admin-token", app][..], "are the same"),
        (&["--app-token", "short", "--admin-token", operator][..], "at least 16"),
    ] {
        let mut command = onceward(&["serve", "--admin", "127.0.0.1:0", "--store"]);
        command.arg(format!("embedded:{}", home.folder.path().join("other").display())).args(flags);
        let ended = command.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(2) && said.contains(says), "{flags:?}: {said}");
    }
}

/// A claim is known to the gateway with its issuer, and as the type that the token has it in.
#[test]
fn receipts_are_found_by_a_claim_of_the_token() {
    let (home, service) = (Home::new(), Service::charging());
    let key_file = home.folder.path().join("jwt.key");
    std::fs::write(&key_file, super::tokens::SECRET).unwrap();
    let flags = ["--jwt-key", &key_file.display().to_string()];
    home.write_config(
        "[[route]]\npath = \"/charges\"\nscope = \"jwt:sub\"\n\
         [[route]]\npath = \"/number\"\nscope = \"jwt:jti\"\n\
         [[route]]\npath = \"/both\"\nscope = [\"jwt:sub\", \"jwt:jti\", \"header:X-Tenant\"]\n",
    );
    let gateway = home.start_with(&service.url(), &flags);
    for caller in ["anna", "bert"] {
        let token = super::tokens::bearer(caller);
        for path in ["/charges", "/number", "/both"] {
            let key = format!("{caller}{}", path.replace('/', "-"));
            let fields = [("Idempotency-Key", &*key), ("Authorization", &*token), ("X-Tenant", "acme")];
            assert_eq!(gateway.post(path, &fields, "{}").status, 201, "{path}");
        }
    }
    let found = |from: &[&str]| {
        let words: Vec<&str> = from.iter().flat_map(|from| ["--scope-from", from]).collect();
        keys(&listed(&gateway, &words)).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found(&["jwt:iss=test", "jwt:sub=anna"]), ["anna-charges"]);
    assert_eq!(found(&["jwt:iss=test", "jwt:sub=bert"]), ["bert-charges"]);
    assert!(found(&["jwt:iss=another", "jwt:sub=anna"]).is_empty());
    assert_eq!(found(&["jwt:iss=test", "jwt:jti=1"]), ["anna-number", "bert-number"]);
    let all = ["jwt:iss=test", "jwt:sub=anna", "jwt:jti=1", "X-Tenant: acme"];
    assert_eq!(found(&all), ["anna-both", "anna-charges", "anna-number", "bert-number"]);
    let (code, _, err) = say(&gateway, &["list", "--scope-from", "jwt:email=a@b"]);
    assert!(code == 1 && err.contains("no route takes its scope from this"), "{err}");
}

#[test]
fn receipts_are_listed_and_settled_by_the_status_that_left_them_unknown() {
    let service = Service::start(|request: &Received| {
        Reply::Answer(request.key().split('-').next().unwrap().parse().unwrap(), "{}".into())
    });
    let home = Home::new();
    // What was answered is not awaited any longer.
    home.write_config("[defaults]\nanswer_timeout = \"1s\"\n");
    let gateway = home.start(&service.url());
    for key in ["502-a", "502-b", "503-a"] {
        gateway.charge(key, "{}");
        assert_eq!(gateway.charge(key, "{}").problem(), (409, "outcome-unknown".into()), "{key}");
    }
    assert_eq!(listed(&gateway, &["--status", "503"]).len(), 1);
    let dry = |status: &str| say(&gateway, &["settle", "--not-done", "--where", status, "--dry-run"]).1;
    assert_eq!(dry("status=502"), "2 receipts would be settled as not done. Nothing was changed.\n");
    assert_eq!(dry("status=504"), "0 receipts would be settled as not done. Nothing was changed.\n");
    let answer = ["settle", "--done", "--status", "201", "--body", "{}", "--where", "status=502", "--yes"];
    let (code, out, err) = say(&gateway, &[&answer[..], &["--reason", "the ledger has them"]].concat());
    assert_eq!((code, out.as_str()), (0, "2 of 2 receipts were settled as done.\n"), "{err}");
    assert_eq!(gateway.charge("502-a", "{}").status, 201);
    assert_eq!(gateway.charge("503-a", "{}").problem(), (409, "outcome-unknown".into()));
    let (code, _, err) = say(&gateway, &["settle", "--not-done", "--where", "status=many", "--dry-run"]);
    assert!(code == 2 && err.contains("between 100 and 599"), "{err}");
    let twice = ["settle", "--not-done", "--where", "status=502", "--where", "error=timeout", "--dry-run"];
    let (code, out, err) = say(&gateway, &twice);
    assert!(code == 1 && out.is_empty() && err.contains("only once"), "{err}");
    assert_eq!(service.effects(), 3);
}
