//! Webhooks through the gateway: verified, deduplicated, passed on or stored first.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use onceward_http::webhook::{Scheme, Signer, Verifier};
use serde_json::Value;

use super::stage::{Gateway, Home, Received, Reply, Service};
use crate::process::{Answer, eventually, onceward};
use crate::servers::Postgres;

/// Base64 of 24 bytes each.
pub const SECRET: &str = "whsec_c2VjcmV0LW9mLXRoZS1zZW5kZXItMDE=";
pub const OWN: &str = "whsec_c2VjcmV0LW9mLXRoZS1nYXRld2F5LTE=";
const VECTORS: &str = include_str!("../../../../onceward-http/tests/webhook_vectors/vectors.json");

pub const DIRECT: &str = "[[route]]\npath = \"/hooks\"\npreset = \"webhook\"\nverify = \"standard-webhooks\"\n\
                          secrets = [\"env:HOOK_SECRET\"]\n";

pub fn storing(more: &str) -> String {
    format!("{DIRECT}accept = \"store-first\"\nsign_with = \"env:OWN_SECRET\"\n{more}\n")
}

/// A gateway in front of a service, with the secrets in its environment.
pub fn start(home: &Home, service: &Service) -> Gateway {
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let secrets = [("HOOK_SECRET", SECRET), ("OWN_SECRET", OWN)];
    Gateway::start_on(&store, &service.url(), &home.config(), &[], &secrets)
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The same on a database that several gateways use.
fn start_on(database: &str, home: &Home, service: &Service) -> Gateway {
    let ours = ("ONCEWARD_SECRET", "0123456789abcdef0123456789abcdef");
    let secrets = [("HOOK_SECRET", SECRET), ("OWN_SECRET", OWN), ours];
    Gateway::start_on(database, &service.url(), &home.config(), &[], &secrets)
}

/// The fields of an event, signed now.
pub fn signed(id: &str, body: &str) -> Vec<(String, String)> {
    let time = now();
    let signature = Signer::new(SECRET).unwrap().sign(id, time, body.as_bytes());
    vec![
        ("webhook-id".into(), id.into()),
        ("webhook-timestamp".into(), time.to_string()),
        ("webhook-signature".into(), signature),
    ]
}

fn send(gateway: &Gateway, id: &str, body: &str) -> Answer {
    post(gateway, &signed(id, body), body)
}

fn json_line(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn post(gateway: &Gateway, fields: &[(String, String)], body: &str) -> Answer {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    gateway.post("/hooks", &fields, body)
}

/// What a service that is sent an event by the gateway can check.
fn is_signed_by_us(got: &Received) -> bool {
    let mut headers = HeaderMap::new();
    for (name, value) in &got.fields {
        headers.insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
    }
    let verifier = Verifier::new(Scheme::StandardWebhooks, [OWN]).unwrap();
    verifier.verify(&headers, &got.body, SystemTime::now()).is_ok()
}

#[test]
fn an_event_is_verified_before_anything_else_and_runs_once() {
    let home = Home::new();
    home.write_config(DIRECT);
    let tries = Mutex::new(0);
    let service = Service::start(move |got| {
        if got.body == br#"{"fails":"once"}"# {
            let mut tries = tries.lock().unwrap();
            *tries += 1;
            return Reply::Answer(if *tries == 1 { 500 } else { 200 }, "{}".into());
        }
        Reply::Answer(200, "{\"taken\":true}".into())
    });
    let gateway = start(&home, &service);
    let first = send(&gateway, "evt_1", "{}");
    assert_eq!((first.status, first.field("idempotent-replayed")), (200, None));
    let again = send(&gateway, "evt_1", "{}");
    assert_eq!((again.status, again.field("idempotent-replayed")), (200, Some("true")));
    // The sender has changed the body between two tries: acknowledged, counted, not delivered.
    let other = send(&gateway, "evt_1", "{\"pending_webhooks\":0}");
    assert_eq!((other.status, service.effects()), (200, 1));
    assert!(gateway.metric("onceward_http_webhook_events_other_body_total") > 0.5);
    let key = service.received()[0].key().to_owned();
    assert!(key.len() > 30 && key != "evt_1", "a derived key: {key}");

    // All but 2xx frees the key.
    assert_eq!(send(&gateway, "evt_2", r#"{"fails":"once"}"#).status, 500);
    assert_eq!(send(&gateway, "evt_2", r#"{"fails":"once"}"#).status, 200);
    assert_eq!(send(&gateway, "evt_2", r#"{"fails":"once"}"#).field("idempotent-replayed"), Some("true"));
    assert_eq!(service.effects(), 3);

    // Forged, changed, late, without an id, with too many signatures, another encoding.
    let refused = |fields: &[(String, String)], body: &str| {
        assert_eq!(post(&gateway, fields, body).problem(), (403, "signature-refused".into()), "{fields:?}");
    };
    refused(&[], "{}");
    refused(&signed("evt_3", "{}"), "{ }");
    refused(&signed("evt_3", "{\"a\":\"\u{e9}\"}"), "{\"a\":\"\\u00e9\"}");
    let mut late = signed("evt_3", "{}");
    let time = now() - 3600;
    late[1].1 = time.to_string();
    late[2].1 = Signer::new(SECRET).unwrap().sign("evt_3", time, b"{}");
    refused(&late, "{}");
    refused(&signed("evt_3", "{}")[1..], "{}");
    let mut many = signed("evt_3", "{}");
    many[2].1 = vec![many[2].1.as_str(); 33].join(" ");
    refused(&many, "{}");
    let mut id = signed("evt_3", "{}");
    id[0].1 = "evt_4".into();
    refused(&id, "{}");
    // Whatever the method is.
    let fields = signed("evt_3", "{}");
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let put = crate::process::send(gateway.address, "PUT", "/hooks", &fields[..2], "{}");
    assert_eq!(put.problem(), (403, "signature-refused".into()));
    assert_eq!(service.effects(), 3);
}

/// The senders' own libraries have made these; neither an id nor a time is signed.
#[test]
fn a_captured_delivery_under_a_new_id_is_not_delivered_again() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for (scheme, id_field) in [("github", "x-github-delivery"), ("shopify", "x-shopify-event-id")] {
        let of_scheme = vectors.as_array().unwrap().iter().filter(|vector| vector["scheme"] == scheme);
        let [vector, new] = of_scheme.collect::<Vec<_>>()[..] else { panic!("there are two of {scheme}") };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let event = |vector: &Value| -> (Vec<(String, String)>, String) {
            let fields = vector["headers"].as_object().unwrap().iter();
            let fields = fields.map(|(name, value)| (name.to_lowercase(), text(value))).collect();
            (fields, text(&vector["body"]))
        };
        let ((fields, body), (new_fields, new_body)) = (event(vector), event(new));
        let under = |id: &str| -> Vec<(String, String)> {
            let replaced = |(name, value): &(String, String)| {
                let value = if name == id_field { id.to_owned() } else { value.clone() };
                (name.clone(), value)
            };
            fields.iter().map(replaced).collect()
        };
        for store_first in [false, true] {
            let home = Home::new();
            // Events that all have the same type are delivered one after the other.
            let config =
                if store_first { storing("order_by = \"header:content-type\"") } else { DIRECT.to_owned() };
            home.write_config(&config.replace("standard-webhooks", scheme));
            let service = Service::start(|_| Reply::Answer(204, String::new()));
            let store = format!("embedded:{}", home.folder.path().join("receipts").display());
            let secret = text(&vector["secret"]);
            let secrets = [("HOOK_SECRET", secret.as_str()), ("OWN_SECRET", OWN)];
            let gateway = Gateway::start_on(&store, &service.url(), &home.config(), &[], &secrets);
            let taken = if store_first { 202 } else { 204 };
            assert_eq!(post(&gateway, &fields, &body).status, taken, "{scheme}");
            eventually("it is delivered", || (service.effects() == 1).then_some(()));
            assert_eq!(
                post(&gateway, &fields, &body).status,
                taken,
                "{scheme}: delivered again by its sender"
            );
            assert_eq!(post(&gateway, &under("a-new-id"), &body).status, taken, "{scheme}: captured");
            assert_eq!(post(&gateway, &under("another"), &body).status, taken);
            // What is delivered comes before this one.
            assert_eq!(post(&gateway, &new_fields, &new_body).status, taken);
            let bodies = || service.received().into_iter().map(|got| got.body).collect::<Vec<_>>();
            eventually("the new one is delivered", || {
                bodies().contains(&new_body.clone().into_bytes()).then_some(())
            });
            let expected = [body.clone().into_bytes(), new_body.clone().into_bytes()];
            assert_eq!(bodies(), expected, "{scheme}, store first: {store_first}");
        }
    }
}

#[test]
fn a_stored_event_is_answered_at_once_and_delivered_until_it_is_taken() {
    let home = Home::new();
    home.write_config(&storing("order_by = \"body:/object\""));
    let tries = Mutex::new(HashMap::<String, u64>::new());
    let service = Service::start(move |got| {
        let body: Value = serde_json::from_slice(&got.body).unwrap();
        let mut tries = tries.lock().unwrap();
        let tries = tries.entry(body["id"].as_str().unwrap().to_owned()).or_default();
        *tries += 1;
        if *tries <= body["fails"].as_u64().unwrap_or(0) {
            return Reply::Answer(503, "{}".into());
        }
        Reply::Answer(200, "{}".into())
    });
    let gateway = start(&home, &service);
    let event = |id: &str, object: &str, fails: u32| {
        format!("{{\"id\":\"{id}\",\"object\":\"{object}\",\"fails\":{fails}}}")
    };
    let (a1, a2, b1) = (event("a1", "a", 1), event("a2", "a", 0), event("b1", "b", 0));
    for (id, body) in [("a1", &a1), ("a2", &a2), ("b1", &b1), ("a1", &a1), ("a1", &a2)] {
        let answer = send(&gateway, id, body);
        assert_eq!((answer.status, answer.body.as_str()), (202, ""), "{id}");
    }
    eventually("all are delivered", || {
        (gateway.metric("onceward_webhook_events_delivered_total") > 2.5).then_some(())
    });
    let received = service.received();
    let ids: Vec<String> = received
        .iter()
        .map(|got| serde_json::from_slice::<Value>(&got.body).unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    let of_a: Vec<_> = ids.iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a1", "a1", "a2"], "in order, and the next one only when the one before was taken");
    assert_eq!(ids.len(), 4, "{ids:?}");
    for got in &received {
        assert!(is_signed_by_us(got), "{got:?}");
        assert!(got.field("onceward-fence").is_some() && got.key().len() > 30);
    }
    let of_a1: Vec<&Received> =
        received.iter().zip(&ids).filter(|(_, id)| *id == "a1").map(|(got, _)| got).collect();
    assert_eq!(of_a1[0].key(), of_a1[1].key(), "the same key on every try");
    let numbers: Vec<_> = of_a1.iter().map(|got| got.field("onceward-try").unwrap()).collect();
    assert_eq!(numbers, ["1", "2"]);
    assert!(gateway.metric("onceward_http_webhook_events_other_body_total") > 0.5, "a1 with another body");
    // Delivered, it is answered as before and not delivered again: it would come before the next one of its object.
    assert_eq!(send(&gateway, "a1", &a1).status, 202);
    assert_eq!(send(&gateway, "a3", &event("a3", "a", 0)).status, 202);
    eventually("the new one is delivered", || {
        (gateway.metric("onceward_webhook_events_delivered_total") > 3.5).then_some(())
    });
    assert_eq!(service.effects(), 5);
    assert!(String::from_utf8_lossy(&service.received()[4].body).contains("\"a3\""));
}

/// Signatures are over the bytes as they are sent: a compressed body passes, and is forwarded as it is.
#[test]
fn a_compressed_body_is_verified_and_forwarded_as_it_is() {
    // {"object":"a","n":1}
    const GZIP: &[u8] =
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV\xcaO\xcaJM.Q\xb2RJT\xd2Q\xcaS\xb22\xac\
                          \x05\x00\x1d\xb6\xfb\n\x14\x00\x00\x00";
    let request = |id: &str, signed_body: &[u8]| {
        let time = now();
        let signature = Signer::new(SECRET).unwrap().sign(id, time, signed_body);
        let head = format!(
            "POST /hooks HTTP/1.1\r\nHost: pay.example\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Encoding: gzip\r\nwebhook-id: {id}\r\nwebhook-timestamp: {time}\r\n\
             webhook-signature: {signature}\r\nContent-Length: {}\r\n\r\n",
            GZIP.len()
        );
        [head.as_bytes(), GZIP].concat()
    };
    for (config, taken) in [(DIRECT.to_owned(), 200), (storing("order_by = \"body:/object\""), 202)] {
        let home = Home::new();
        home.write_config(&config);
        let service = Service::start(|_| Reply::Answer(200, "{}".into()));
        let gateway = start(&home, &service);
        // Signed before it was compressed: those are not the bytes that were sent.
        let refused = gateway.raw(&request("evt_0", br#"{"object":"a","n":1}"#));
        assert!(refused.starts_with("HTTP/1.1 403 ") && refused.contains("signature-refused"), "{refused}");
        for _ in 0..2 {
            let answer = gateway.raw(&request("evt_1", GZIP));
            assert!(answer.starts_with(&format!("HTTP/1.1 {taken} ")), "{answer}");
        }
        assert!(gateway.raw(&request("evt_2", GZIP)).starts_with(&format!("HTTP/1.1 {taken} ")));
        eventually("both are delivered", || (service.effects() >= 2).then_some(()));
        let received = service.received();
        assert_eq!(received.len(), 2, "once each");
        for got in received {
            assert_eq!((got.body.as_slice(), got.field("content-encoding")), (GZIP, Some("gzip")));
        }
    }
}

/// A sender that signs nothing: the key is where the route says, and all else is as for others.
#[test]
fn a_sender_without_signatures_has_its_key_where_the_route_says() {
    for (key_from, body_of) in [
        ("header:X-Event-Id", (|_, n| format!("{{\"n\":{n}}}")) as fn(&str, u32) -> String),
        ("body:/id", |id, n| format!("{{\"id\":\"{id}\",\"n\":{n}}}")),
    ] {
        let home = Home::new();
        let route =
            format!("[[route]]\npath = \"/hooks\"\npreset = \"webhook\"\nkey_from = \"{key_from}\"\n");
        home.write_config(&route);
        let failed = Mutex::new(false);
        let service = Service::start(move |got| {
            let is_flaky = got.field("x-event-id") == Some("evt_2");
            if is_flaky && !std::mem::replace(&mut *failed.lock().unwrap(), true) {
                return Reply::Answer(500, "{}".into());
            }
            Reply::Answer(200, "{\"taken\":true}".into())
        });
        let gateway = start(&home, &service);
        let send = |id: &str| {
            let answer = gateway.post("/hooks", &[("X-Event-Id", id)], &body_of(id, 1));
            (answer.status, answer.field("idempotent-replayed").is_some())
        };
        assert_eq!(send("evt_1"), (200, false), "{key_from}");
        assert_eq!(send("evt_1"), (200, true), "{key_from}");
        // All but 2xx frees the key.
        assert_eq!((send("evt_2"), send("evt_2"), send("evt_2")), ((500, false), (200, false), (200, true)));
        assert_eq!(service.effects(), 3);
        // Nothing says that the sender has changed the body: the id was used for something else.
        let other = gateway.post("/hooks", &[("X-Event-Id", "evt_1")], &body_of("evt_1", 2));
        assert_eq!(other.problem(), (422, "key-reused".into()), "{key_from}");
        assert!(gateway.metric("onceward_http_webhook_events_other_body_total") < 0.5);
        assert_eq!(service.effects(), 3);
        // An event without a key cannot be told from another one: it passes, unless the route needs one.
        for _ in 0..2 {
            assert_eq!(gateway.post("/hooks", &[], "{}").status, 200);
        }
        assert_eq!(service.effects(), 5);
        home.write_config(&format!("{route}key = \"required\"\n"));
        let gateway = {
            drop(gateway);
            start(&home, &service)
        };
        let without = gateway.post("/hooks", &[], "{}");
        assert_eq!(without.problem(), (400, "key-missing".into()), "{key_from}");
        assert_eq!(service.effects(), 5);
    }
}

#[test]
fn after_its_tries_or_a_replayed_failure_an_event_is_a_dead_letter() {
    let home = Home::new();
    home.write_config(&storing("order_by = \"body:/object\"\ntries = 2\naccept_status = 200"));
    let service = Service::start(|got| match got.body.as_slice() {
        br#"{"object":1,"n":"refused"}"# => Reply::Answer(400, "{}".into()),
        br#"{"object":1,"n":"replayed"}"# => Reply::Raw(
            b"HTTP/1.1 500 Again\r\nIdempotent-Replayed: true\r\nContent-Length: 0\r\n\r\n".to_vec(),
        ),
        _ => Reply::Answer(200, "{}".into()),
    });
    let gateway = start(&home, &service);
    for (id, body) in [
        ("refused", r#"{"object":1,"n":"refused"}"#),
        ("replayed", r#"{"object":1,"n":"replayed"}"#),
        ("good", r#"{"object":1,"n":"good"}"#),
    ] {
        assert_eq!(send(&gateway, id, body).status, 200);
    }
    eventually("the last one is delivered", || {
        (gateway.metric("onceward_webhook_events_delivered_total") > 0.5).then_some(())
    });
    assert_eq!(service.effects(), 4, "twice, once because it is replayed, once");
    assert!((gateway.metric("onceward_webhook_events_dead_total") - 2.0).abs() < 0.1);
    // Its sender sends it again: acknowledged and counted, or it would be repeated for days. It stays dead.
    for count in 1..=2 {
        let again = send(&gateway, "refused", r#"{"object":1,"n":"refused"}"#);
        assert_eq!((again.status, again.body.as_str()), (200, ""));
        let counted = gateway.metric("onceward_webhook_events_dead_again_total");
        assert!((counted - f64::from(count)).abs() < 0.1, "{counted}");
    }
    let admin = gateway.admin.to_string();
    let listed = onceward(&["receipts", "dead", "list", "--admin", &admin, "--json"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("400") && listed.contains("replays 500"), "{listed}");
    assert_eq!(service.effects(), 4, "it is not delivered again");
    let exported = onceward(&["receipts", "dead", "export", "--admin", &admin]).output().unwrap();
    let exported: Vec<Value> = String::from_utf8(exported.stdout).unwrap().lines().map(json_line).collect();
    assert_eq!(exported.len(), 2, "{exported:?}");
    let one = exported.iter().find(|line| line["key"] == "refused").unwrap();
    assert_eq!((&one["operation"], &one["state"]), (&"POST /hooks".into(), &"dead".into()));
    assert_eq!(one["event"]["body"], r#"{"object":1,"n":"refused"}"#);
    assert_eq!((&one["event"]["target"], &one["event"]["event"]), (&"/hooks".into(), &"refused".into()));
    let fields = one["event"]["headers"].as_array().unwrap();
    assert!(fields.iter().any(|field| field[0] == "webhook-id" && field[1] == "refused"), "{fields:?}");
    let some = ["receipts", "dead", "export", "--admin", &admin, "--error", "replays"];
    let some = String::from_utf8(onceward(&some).output().unwrap().stdout).unwrap();
    assert!(some.lines().count() == 1 && some.contains("replays 500"), "{some}");

    // Again under the same key, or, by a person who knows, under a new one.
    let operation = ["shared", "POST /hooks", "refused", "--admin", &admin];
    let retry = |more: &[&str]| {
        let mut command = onceward(&["receipts", "dead", "retry"]);
        let output = command.args(operation).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let is_dead = |count: f64| {
        eventually("it is dead again", || {
            (gateway.metric("onceward_webhook_events_dead_total") > count - 0.5).then_some(())
        });
    };
    retry(&[]);
    is_dead(3.0);
    let said = retry(&["--new-key", "--yes"]);
    assert!(said.contains("twice"), "{said}");
    is_dead(4.0);
    let received = service.received();
    let keys: Vec<&str> =
        received.iter().filter(|got| got.body.ends_with(br#""refused"}"#)).map(Received::key).collect();
    assert_eq!(keys.len(), 6, "twice each time");
    assert!(keys[..4].iter().all(|key| *key == keys[0]), "the same key on a plain retry: {keys:?}");
    assert!(keys[4] == keys[5] && keys[4] != keys[0], "{keys:?}");
    assert_eq!(send(&gateway, "refused", r#"{"object":1,"n":"refused"}"#).status, 200, "it is discarded");
}

#[test]
fn a_killed_gateway_loses_no_event_and_keeps_their_order() {
    let home = Home::new();
    home.write_config(&storing("order_by = \"body:/object\""));
    let silent = Service::start(|_| Reply::Stall(Vec::new()));
    let gateway = start(&home, &silent);
    let body = |n: u32| format!("{{\"object\":\"a\",\"n\":{n}}}");
    for n in 0..20 {
        assert_eq!(send(&gateway, &format!("evt_{n}"), &body(n)).status, 202);
    }
    eventually("the first is being delivered", || (silent.effects() == 1).then_some(()));
    gateway.kill();
    let service = Service::start(|_| Reply::Answer(200, "{}".into()));
    let gateway = start(&home, &service);
    assert_eq!(send(&gateway, "evt_20", &body(20)).status, 202);
    eventually("all are delivered", || (service.effects() == 21).then_some(()));
    let order: Vec<_> =
        service.received().iter().map(|got| String::from_utf8(got.body.clone()).unwrap()).collect();
    assert_eq!(order, (0..=20).map(body).collect::<Vec<_>>());
    assert_eq!(service.received()[0].key(), silent.received()[0].key(), "under the same key");
    assert_eq!(
        service.received()[0].field("onceward-try"),
        Some("2"),
        "a try that ended with its process counts"
    );
}

#[test]
fn settings_that_cannot_work_are_named() {
    let home = Home::new();
    let check = |config: &str| {
        home.write_config(config);
        let mut command = onceward(&["config", "check", home.config().to_str().unwrap()]);
        let output =
            command.env("HOOK_SECRET", SECRET).env("OWN_SECRET", OWN).env("SHORT", "abc").output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, shown) = check(&storing("order_by = \"header:X-Object\""));
    assert_eq!(code, Some(0), "{shown}");
    for row in [
        "verify               standard-webhooks",
        "key_from             event:standard-webhooks",
        "in order by header:x-object",
    ] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    for (config, why) in [
        (DIRECT.replace("secrets = [\"env:HOOK_SECRET\"]", ""), "secrets: they are missing"),
        (DIRECT.replace("env:HOOK_SECRET", "env:NOT_THERE"), "NOT_THERE is not set"),
        (DIRECT.replace("env:HOOK_SECRET", "whsec_abc"), "say where the secret is"),
        (DIRECT.replace("env:HOOK_SECRET", "env:SHORT"), "secrets:"),
        (DIRECT.replace("standard-webhooks", "paypal"), "there is no scheme"),
        (DIRECT.replace("preset = \"webhook\"", "preset = \"queue\""), "needs preset"),
        (format!("{DIRECT}key_from = \"body:/id\""), "leave this out"),
        (format!("{DIRECT}order_by = \"body:/id\""), "store-first"),
        (storing("").replace("sign_with = \"env:OWN_SECRET\"", ""), "sign_with: it is missing"),
        (storing("accept_status = 500"), "2xx"),
        (storing("scope = \"host\""), "one scope"),
        (storing("on_unknown = \"hold\""), "at least once"),
        (storing("order_by = \"id\""), "names no object"),
        ("[[route]]\npath = \"/a\"\npreset = \"webhook\"".into(), "needs `verify`"),
        ("[[route]]\npath = \"/a\"\norder_by = \"body:/a\"".into(), "without `verify`"),
        (
            "[[route]]\npath = \"/a\"\npreset = \"webhook\"\nkey_from = \"body:/id\"\naccept = \"store-first\"".into(),
            "accept: it has no effect without `verify`",
        ),
    ] {
        let (code, said) = check(&config);
        assert_eq!(code, Some(2), "{config}\n{said}");
        assert!(said.contains(why), "{why}: {said}");
        assert!(!said.contains("whsec_abc"), "{said}");
    }
    // A bound of the store is known only at the start.
    home.write_config(&storing("request_bytes_max = \"1MiB\""));
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let mut command = onceward(&["proxy", "--upstream", "http://127.0.0.1:9", "--store", &store]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]).arg(home.config());
    let output = command.env("HOOK_SECRET", SECRET).env("OWN_SECRET", OWN).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("do not fit into a receipt"), "{said}");
}

/// A sender that reaches two gateways in turn waits for each acknowledgement; whichever gateway delivers, the service gets
/// the events of an object in that order.
#[test]
fn objects_keep_their_order_over_two_gateways() {
    const EVENTS: usize = 30;
    let Some(server) = Postgres::shared() else { return };
    let database = server.url(&server.fresh());
    let home = Home::new();
    home.write_config(&storing("order_by = \"body:/object\""));
    let service = Service::start(|_| Reply::Answer(200, "{}".into()));
    let gateways = [start_on(&database, &home, &service), start_on(&database, &home, &service)];
    let body = |object: &str, n: usize| format!("{{\"object\":\"{object}\",\"n\":{n}}}");
    let objects = ["a", "b"];
    std::thread::scope(|scope| {
        for (from, object) in objects.into_iter().enumerate() {
            let gateways = &gateways;
            scope.spawn(move || {
                for n in 0..EVENTS {
                    let gateway = &gateways[(n + from) % 2];
                    assert_eq!(send(gateway, &format!("evt_{object}_{n}"), &body(object, n)).status, 202);
                }
            });
        }
    });
    eventually("all are delivered", || (service.effects() >= EVENTS * objects.len()).then_some(()));
    for object in objects {
        let is_its = |got: &Received| String::from_utf8_lossy(&got.body).contains(&format!("\"{object}\""));
        let received = service.received();
        let received = received.iter().filter(|got| is_its(got));
        let received: Vec<_> = received.map(|got| String::from_utf8(got.body.clone()).unwrap()).collect();
        let sent: Vec<_> = (0..EVENTS).map(|n| body(object, n)).collect();
        assert_eq!(received, sent);
    }
}
