//! Access to the admin listener: tokens, and requests that a browser or an attacker could send.

use serde_json::json;
use tempfile::tempdir;

use crate::process::{Process, onceward, send};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const TOKEN: &str = "0123456789abcdef-secret";

#[test]
fn with_a_token_the_api_refuses_requests_without_it() {
    let folder = tempdir().unwrap();
    let mut command = onceward(&["serve", "--admin", "0.0.0.0:0", "--log", "warn", "--store"]);
    command.env("ONCEWARD_ADMIN_TOKEN", TOKEN);
    let process = Process::start(command, folder.path());
    let list = |token: Option<&str>| {
        let value = token.map(|token| format!("Bearer {token}"));
        let fields: Vec<_> = value.iter().map(|value| ("Authorization", value.as_str())).collect();
        send(process.address, "GET", "/v1/receipts", &fields, "")
    };
    assert_eq!(list(Some(TOKEN)).status, 200);
    let stranger = list(None);
    assert_eq!(stranger.problem(), (401, "unauthorized".into()));
    assert_eq!(stranger.field("www-authenticate"), Some("Bearer"));
    assert_eq!(list(Some("0123456789abcdef-guessed")).status, 401);
    for path in ["/v1/claim", "/v1/renew", "/v1/complete", "/v1/release", "/v1/unknown", "/v1/settle"] {
        assert_eq!(send(process.address, "POST", path, &[JSON], "{}").status, 401, "{path}");
    }
    for path in ["/v1/receipt?scope=s&operation=o&key=k", "/v1/receipts", "//v1/receipts", "/%761/receipts"] {
        assert!([401, 404].contains(&process.get(path).status), "{path}");
    }
    // Monitors need no token, and see no key and no scope.
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(process.get(path).status, 200, "{path}");
    }
    // With a token any host name is accepted: there may be a load balancer in front.
    let value = format!("Bearer {TOKEN}");
    let fields = [("Host", "receipts.example"), ("Authorization", value.as_str())];
    assert_eq!(send(process.address, "GET", "/v1/receipts", &fields, "").status, 200);
}

#[test]
fn a_page_in_a_browser_on_this_machine_can_neither_read_nor_settle() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let claim = json!({"scope": "s", "operation": "o", "key": "k", "policy": {"lease_ms": 60_000, "late_effect_max_ms": 0}});
    let ticket = process.post("/v1/claim", &claim).json()["ticket"].clone();
    let fence = process.get("/v1/receipt?scope=s&operation=o&key=k").json()["fence"].clone();
    assert_eq!(process.post("/v1/unknown", &json!({ "ticket": ticket })).status, 204);
    let own = process.address.to_string();
    let settle = json!({"scope": "s", "operation": "o", "key": "k", "fence": fence, "not_done": true});
    let settle = settle.to_string();
    let attack = |fields: &[(&str, &str)]| send(process.address, "POST", "/v1/settle", fields, &settle);

    // A form, or fetch() without a preflight: one of three media types.
    for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        assert_eq!(attack(&[("Content-Type", media)]).problem(), (415, "not-json".into()), "{media}");
    }
    assert_eq!(attack(&[]).problem(), (415, "not-json".into()));
    // fetch() from another page, preflight or not.
    for origin in ["https://evil.example", "http://localhost:3000", "null"] {
        let (host, origin) = (("Host", own.as_str()), ("Origin", origin));
        assert_eq!(attack(&[host, origin, JSON]).problem(), (403, "foreign-page".into()));
        let preflight = [host, origin, ("Access-Control-Request-Method", "POST")];
        let preflight = send(process.address, "OPTIONS", "/v1/settle", &preflight, "");
        assert_eq!(preflight.status, 403);
        assert_eq!(preflight.field("access-control-allow-origin"), None);
    }
    assert_eq!(attack(&[JSON, ("Sec-Fetch-Site", "cross-site")]).status, 403);
    // DNS rebinding: a name of the attacker that now resolves to this machine has the same origin for the browser.
    let rebound = [("Host", "evil.example:8081"), ("Origin", "http://evil.example:8081"), JSON];
    assert_eq!(attack(&rebound).problem(), (403, "foreign-page".into()));
    for path in ["/v1/receipts", "/metrics", "/openapi.json"] {
        assert_eq!(send(process.address, "GET", path, &[("Host", "evil.example:8081")], "").status, 403);
    }
    // None of these had an effect; a program on this machine can still use the API.
    assert_eq!(process.get("/v1/receipt?scope=s&operation=o&key=k").json()["state"], "unknown");
    assert_eq!(attack(&[JSON]).status, 204);
}

#[test]
fn invalid_requests_are_refused_with_a_reason() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let post = |path: &str, body: &str| send(process.address, "POST", path, &[JSON], body);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"scope": "s", "operation": "o", "key": ""}"#,
        r#"{"scope": "s", "operation": "o", "key": "é"}"#,
        r#"{"scope": "s", "operation": "o#step", "key": "k"}"#,
        r#"{"scope": "s", "operation": "o", "key": "k", "wait": 5}"#,
        r#"{"scope": "s", "operation": "o", "key": "k", "wait_ms": -5}"#,
        r#"{"scope": "s", "operation": "o", "key": "k", "wait_ms": 1000000000}"#,
        r#"{"scope": "s", "operation": "o", "key": "k", "attempt": "one"}"#,
        r#"{"scope": "s", "operation": "o", "key": "k", "policy": {"lease_ms": 0}}"#,
        r#"{"scope": "s", "operation": "o", "key": "k", "policy": {"preset": "best"}}"#,
    ] {
        assert_eq!(post("/v1/claim", body).problem(), (400, "invalid-request".into()), "{body}");
    }
    assert_eq!(post("/v1/renew", r#"{"ticket": "made up"}"#).problem(), (400, "invalid-request".into()));
    let huge = format!(r#"{{"ticket": "{}"}}"#, "x".repeat(3 << 20));
    assert_eq!(post("/v1/renew", &huge).problem(), (413, "body-too-large".into()));
    for path in [
        "/v1/receipt",
        "/v1/receipt?scope=s&operation=o",
        "/v1/receipts?state=lost",
        "/v1/receipts?limit=many",
        "/v1/receipts?cursor=!",
        "/v1/receipts?stat=held",
    ] {
        assert_eq!(process.get(path).problem(), (400, "invalid-request".into()), "{path}");
    }
    assert_eq!(process.get("/v2/receipts").problem(), (404, "no-such-path".into()));
    assert_eq!(process.get("/v1/claim").problem(), (405, "no-such-method".into()));
    assert_eq!(process.get("/v1/receipt?scope=s&operation=o&key=k").problem(), (404, "no-receipt".into()));
}
