//! Keys from another header field, or from the body.

use super::stage::{Gateway, Home, Reply, Service};
use crate::process::{Answer, eventually, onceward};

fn replayed(answer: &Answer) -> bool {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.field("idempotent-replayed") == Some("true")
}

fn stage(config: &str) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(config);
    let gateway = home.start(&service.url());
    (home, service, gateway)
}

#[test]
fn a_key_comes_from_another_field() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/charges\"\nkey_from = \"header:PayPal-Request-Id\"\n\
         [[route]]\npath = \"/needed\"\nkey = \"required\"\nkey_from = \"header:X-Request-Key\"\n\
         [[route]]\npath = \"/derived\"\nkey_from = \"header:X-Request-Key\"\nforward_key = \"derived\"\n\
         [[route]]\npath = \"/stripped\"\nkey_from = \"header:X-Request-Key\"\nforward_key = \"stripped\"\n",
    );
    let send = |path: &str, name: &str, key: &str| gateway.post(path, &[(name, key)], "{}");
    assert!(!replayed(&send("/charges", "PayPal-Request-Id", "k")));
    assert!(replayed(&send("/charges", "PayPal-Request-Id", "\"k\"")), "in the form that the route takes");
    assert_eq!(service.received()[0].field("paypal-request-id"), Some("k"), "forwarded as it came");
    // There the usual field is no key.
    assert!(!replayed(&send("/charges", "Idempotency-Key", "k")));
    assert!(!replayed(&send("/charges", "Idempotency-Key", "k")));

    let missing = send("/needed", "Idempotency-Key", "k");
    assert_eq!(missing.problem(), (400, "key-missing".into()));
    assert!(missing.body.contains("Send X-Request-Key"), "{missing:?}");
    let malformed = send("/needed", "X-Request-Key", "a, b");
    assert_eq!(malformed.problem(), (400, "key-malformed".into()));
    assert!(malformed.body.contains("the X-Request-Key is not"), "{malformed:?}");
    let both = gateway.post("/needed", &[("X-Request-Key", "a"), ("X-Request-Key", "b")], "{}");
    assert_eq!(both.problem(), (400, "key-malformed".into()));
    let dropped = gateway.post("/needed", &[("X-Request-Key", "a"), ("Connection", "X-Request-Key")], "{}");
    assert_eq!(dropped.problem().0, 400, "a key that the next hop would not see");
    assert_eq!(service.effects(), 3);

    send("/derived", "X-Request-Key", "k");
    send("/stripped", "X-Request-Key", "k");
    let keys: Vec<_> =
        service.received()[3..].iter().map(|got| got.field("x-request-key").map(str::to_owned)).collect();
    assert!(keys[0].as_ref().is_some_and(|key| key.starts_with('"') && key.len() > 20), "{keys:?}");
    assert_eq!(keys[1], None);
}

#[test]
fn a_key_comes_from_the_body() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/events\"\nkey_from = \"body:/event/id\"\n\
         [[route]]\npath = \"/needed\"\nkey = \"required\"\nkey_from = \"body:/id\"\nrequest_bytes_max = 1000\n",
    );
    let send = |path: &str, body: &str| gateway.post(path, &[], body);
    let long = format!("{{\"event\":{{\"id\":\"{}\"}}}}", "ü".repeat(400));
    for body in [r#"{"event":{"id":"a"}}"#, r#"{"event":{"id":7}}"#, &long] {
        assert!(!replayed(&send("/events", body)), "{body}");
        assert!(replayed(&send("/events", body)), "{body}");
    }
    assert!(replayed(&send("/events", r#"{ "event": { "id": "a" } }"#)), "by its value");
    let other = send("/events", r#"{"event":{"id":"a"},"amount":1}"#);
    assert_eq!(other.problem(), (422, "key-reused".into()));
    // A key of its own is not the one of the request.
    assert!(replayed(&gateway.post("/events", &[("Idempotency-Key", "x")], r#"{"event":{"id":"a"}}"#)));
    assert_eq!(service.effects(), 3);
    // Without the member it passes where keys are optional, with its whole body.
    assert!(!replayed(&send("/events", r#"{"event":{}}"#)));
    assert!(!replayed(&send("/events", r#"{"event":{}}"#)));
    assert_eq!(service.received()[4].body, br#"{"event":{}}"#);
    assert_eq!(service.received()[4].field("onceward-fence"), None);
    assert!(gateway.metric("onceward_http_requests_keyless_total") > 1.5);

    for (body, problem) in [
        ("{}", "key-missing"),
        ("[]", "key-missing"),
        (r#"{"id":null}"#, "key-malformed"),
        (r#"{"id":1.5}"#, "key-malformed"),
        (r#"{"id":true}"#, "key-malformed"),
        (r#"{"id":["a"]}"#, "key-malformed"),
        (r#"{"id":""}"#, "key-malformed"),
        (r#"{"id":"a","id":"b"}"#, "key-malformed"),
        ("id=1", "key-malformed"),
        ("", "key-malformed"),
    ] {
        assert_eq!(send("/needed", body).problem(), (400, problem.into()), "{body}");
    }
    let large = format!("{{\"id\":\"{}\"}}", "x".repeat(1000));
    assert_eq!(send("/needed", &large).problem(), (413, "body-too-large".into()));
    // Whose request it is still has to be known.
    let cookie = gateway.post("/needed", &[("Cookie", "session=1")], r#"{"id":1}"#);
    assert_eq!(cookie.problem(), (400, "scope-missing".into()));
    assert_eq!(service.effects(), 5);
}

#[test]
fn callers_keep_their_own_keys_and_a_lost_answer_is_held() {
    let home = Home::new();
    let service = Service::start(|request| match request.body.as_slice() {
        br#"{"id":"lost"}"# => Reply::Raw(Vec::new()),
        _ => Reply::created("{}"),
    });
    home.write_config("[[route]]\npath = \"/events\"\nkey_from = \"body:/id\"");
    let gateway = home.start(&service.url());
    let send = |token: &str, body: &str| gateway.post("/events", &[("Authorization", token)], body);
    assert!(!replayed(&send("Bearer a", r#"{"id":1}"#)));
    assert!(!replayed(&send("Bearer b", r#"{"id":1}"#)));
    assert!(replayed(&send("Bearer a", r#"{"id":1}"#)));
    assert_eq!(send("Bearer a", r#"{"id":"lost"}"#).problem(), (504, "upstream-timeout".into()));
    assert_eq!(send("Bearer a", r#"{"id":"lost"}"#).problem(), (409, "outcome-unknown".into()));
    assert_eq!(service.effects(), 3);
}

#[test]
fn the_source_is_published_checked_and_not_changed_while_it_runs() {
    let config = "[[route]]\npath = \"/events\"\nkey_from = \"body:/id\"\n[[route]]\npath = \"/pay\"\nkey_from = \"header:X-Key\"";
    let (home, _service, gateway) = stage(config);
    let published = gateway.get("/.well-known/idempotency").json();
    assert_eq!(published["routes"][0]["key"]["from"], "body:/id");
    assert_eq!(published["routes"][1]["key"]["from"], "header:x-key");
    assert_eq!(published["routes"][2]["key"]["from"], "header:idempotency-key");
    let openapi = gateway.get("/.well-known/idempotency?format=openapi").json();
    assert_eq!(openapi["paths"]["/events"]["post"]["parameters"], serde_json::json!([]));
    assert_eq!(openapi["paths"]["/pay"]["post"]["parameters"][0]["name"], "x-key");

    let checked = onceward(&["config", "check", home.config().to_str().unwrap()]).output().unwrap();
    let printed = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && printed.contains("key_from             body:/id"), "{printed}");
    for (wrong, why) in [
        ("id", "write `header:NAME` or `body:/pointer`"),
        ("body:", "points to the whole body"),
        ("body:id", "does not begin with a slash"),
        ("header:a b", "does not name a header field"),
    ] {
        let file = home.folder.path().join("wrong.toml");
        std::fs::write(&file, format!("[[route]]\npath = \"/a\"\nkey_from = \"{wrong}\"")).unwrap();
        let output = onceward(&["config", "check", file.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said.contains(why) && said.contains("line 3"), "{said}");
    }

    // A reload with another source would make strangers of all retries: the old routes stay.
    assert!(!replayed(&gateway.post("/events", &[], r#"{"id":1,"other":2}"#)));
    home.write_config(&config.replace("body:/id", "body:/other").replace("/pay", "/new"));
    gateway.signal("-HUP");
    home.write_config(&format!("{config}\n[[route]]\npath = \"/last\"\nkey = \"required\""));
    gateway.signal("-HUP");
    eventually("the last file is in effect", || {
        (gateway.post("/last", &[], "{}").status == 400).then_some(())
    });
    assert!(replayed(&gateway.post("/events", &[], r#"{"id":1,"other":2}"#)));
}
