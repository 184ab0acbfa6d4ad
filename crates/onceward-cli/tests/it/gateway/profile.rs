//! Rules of the protocol that no other file here tests.

use std::thread;
use std::time::Duration;

use super::stage::{Gateway, Home, Reply, Service};
use crate::process::{Answer, eventually, send};

fn stage(config: &str) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(config);
    let gateway = home.start(&service.url());
    (home, service, gateway)
}

fn keyed(gateway: &Gateway, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
    let mut fields = vec![("Idempotency-Key", "k")];
    fields.extend_from_slice(more);
    gateway.post(path, &fields, body)
}

/// Whether the answer is a replay.
fn replayed(answer: &Answer) -> bool {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.field("idempotent-replayed") == Some("true")
}

#[test]
fn posts_and_patches_are_guarded_and_nothing_else() {
    let (_home, service, gateway) = stage("[[route]]\npath = \"/ignored\"\nkey = \"ignored\"");
    let twice = |method: &str, path: &str| {
        let key = [("Idempotency-Key", "k")];
        [0, 1].map(|_| replayed(&send(gateway.address, method, path, &key, "{}")))
    };
    for method in ["POST", "PATCH"] {
        assert_eq!(twice(method, "/charges"), [false, true], "{method}");
    }
    for method in ["PUT", "DELETE", "GET", "OPTIONS"] {
        assert_eq!(twice(method, "/charges"), [false, false], "{method}");
    }
    assert_eq!(twice("POST", "/ignored"), [false, false]);
    assert_eq!(service.effects(), 2 + 8 + 2);
}

#[test]
fn a_route_sets_how_strictly_a_key_is_parsed() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/strict\"\nkey_form = \"strict\"\n\
         [[route]]\npath = \"/raw\"\nkey_form = \"raw\"\n\
         [[route]]\npath = \"/long\"\nkey_length_min = 8\nkey_pattern = \"[a-z]+-[0-9]+\"\n",
    );
    for (path, key, status) in [
        ("/strict", "\"a\"", 201),
        ("/strict", "a", 400),
        ("/raw", "a, \"b\"", 201),
        ("/long", "order-81", 201),
        ("/long", "order-8", 400),
        ("/long", "ORDER-81", 400),
        ("/lenient", "a", 201),
    ] {
        let answer = gateway.post(path, &[("Idempotency-Key", key)], "{}");
        assert_eq!(answer.status, status, "{path} {key}: {answer:?}");
        if status == 400 {
            assert_eq!(answer.problem().1, "key-malformed");
        }
    }
    assert!(replayed(&gateway.post("/lenient", &[("Idempotency-Key", "\"a\"")], "{}")));
    assert_eq!(service.effects(), 4);
}

#[test]
fn a_scope_is_a_field_or_shared_and_an_operation_a_path_or_a_route() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/tenants\"\nscope = \"header:X-Tenant\"\nanonymous = \"refuse\"\n\
         [[route]]\npath = \"/all\"\nscope = \"shared\"\n\
         [[route]]\npath = \"/orders/{id}\"\noperation = \"route\"\n",
    );
    let tenant = |name: &str, token: &str| {
        keyed(&gateway, "/tenants", &[("X-Tenant", name), ("Authorization", token)], "{}")
    };
    assert!(!replayed(&tenant("anna", "old")));
    assert!(!replayed(&tenant("bert", "old")));
    assert!(replayed(&tenant("anna", "new")));
    assert_eq!(keyed(&gateway, "/tenants", &[], "{}").problem(), (400, "scope-missing".into()));
    assert!(!replayed(&keyed(&gateway, "/all", &[("Authorization", "Bearer a")], "{}")));
    assert!(replayed(&keyed(&gateway, "/all", &[("Authorization", "Bearer b")], "{}")));
    assert!(!replayed(&keyed(&gateway, "/orders/1", &[], "{}")));
    let other = keyed(&gateway, "/orders/2", &[], "{}");
    assert_eq!(other.problem(), (422, "key-reused".into()), "one operation, another path");
    assert_eq!(service.effects(), 4);
}

#[test]
fn requests_are_compared_by_meaning_and_by_the_parts_that_the_route_names() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/loose\"\n\
         fingerprint = { members_except = [\"/sent_at\"], parameters_except = [\"trace\"], headers = [\"X-Version\"] }",
    );
    let json = "application/json";
    let form = "application/x-www-form-urlencoded";
    for (path, media, first, again, same) in [
        ("/a", json, "{\"a\":1,\"b\":\"\\u0041\"}", "{ \"b\": \"A\", \"a\": 10e-1 }", true),
        ("/b", json, "{\"a\":9007199254740993}", "{\"a\":9007199254740992}", false),
        ("/c", form, "a=1&b=%41", "a=1&b=A", true),
        ("/d", form, "a=1&b=2", "a=1&b=3", false),
        ("/e", "text/plain", "{\"a\":1}", "{ \"a\":1}", false),
        ("/loose", json, "{\"a\":1,\"sent_at\":1}", "{\"a\":1,\"sent_at\":2}", true),
    ] {
        let send = |body: &str| {
            let fields = [("Content-Type", media), ("Idempotency-Key", "k"), ("Host", "pay.example")];
            send(gateway.address, "POST", path, &fields, body)
        };
        assert!(!replayed(&send(first)), "{path}");
        let again = send(again);
        if same {
            assert!(replayed(&again), "{path}");
        } else {
            assert_eq!(again.problem(), (422, "key-reused".into()), "{path}");
        }
    }
    let body = "{\"a\":1}";
    assert!(replayed(&keyed(&gateway, "/loose?trace=1", &[], body)));
    assert_eq!(keyed(&gateway, "/loose?page=2", &[], body).problem(), (422, "key-reused".into()));
    assert_eq!(keyed(&gateway, "/loose", &[("X-Version", "2")], body).problem(), (422, "key-reused".into()));
    assert_eq!(service.effects(), 6);
}

#[test]
fn another_body_is_refused_while_the_first_is_running_and_a_wait_runs_out() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let service = Service::start(move |_| {
        let _ = gate.lock().unwrap().recv();
        Reply::created("{}")
    });
    let home = Home::new();
    home.write_config("[defaults]\nwait_at_most = \"100ms\"");
    let gateway = home.start(&service.url());
    thread::scope(|scope| {
        let first = scope.spawn(|| keyed(&gateway, "/charges", &[], "{\"a\":1}"));
        eventually("the first is running", || (service.effects() == 1).then_some(()));
        let other = keyed(&gateway, "/charges", &[], "{\"a\":2}");
        assert_eq!(other.problem(), (422, "key-reused".into()));
        let late = keyed(&gateway, "/charges", &[], "{\"a\":1}");
        assert_eq!(late.problem(), (409, "in-progress".into()));
        assert!(late.field("retry-after").is_some() && late.json()["retryable"] == true, "{late:?}");
        go.send(()).unwrap();
        assert_eq!(first.join().unwrap().status, 201);
    });
    assert!(replayed(&keyed(&gateway, "/charges", &[], "{\"a\":1}")));
    assert_eq!(service.effects(), 1);
}

#[test]
fn a_key_past_its_retention_runs_again_or_is_refused() {
    let (_home, service, gateway) = stage(
        "[defaults]\nkeep = \"200ms\"\n[[route]]\npath = \"/late\"\non_expired = \"reject\"\nexpired_kept = \"1h\"",
    );
    assert!(!replayed(&keyed(&gateway, "/late", &[], "{}")));
    let refused = eventually("the retention ends", || {
        let answer = keyed(&gateway, "/late", &[], "{}");
        (answer.status != 201).then_some(answer)
    });
    assert_eq!(refused.problem(), (410, "key-expired".into()));
    assert_eq!(service.effects(), 1);
    keyed(&gateway, "/again", &[], "{}");
    eventually("it runs again", || (!replayed(&keyed(&gateway, "/again", &[], "{}"))).then_some(()));
}

#[test]
fn a_caller_over_its_quota_is_refused_and_others_are_not() {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let service = Service::start(move |request| {
        if request.key() == "slow" {
            let _ = gate.lock().unwrap().recv();
        }
        Reply::created("{}")
    });
    let home = Home::new();
    let gateway = home.start_with(&service.url(), &["--in-flight-per-scope-max", "1"]);
    let charge = |caller: &str, key: &str| {
        gateway.post(
            "/charges",
            &[("Idempotency-Key", key), ("Authorization", &format!("Bearer {caller}"))],
            "{}",
        )
    };
    thread::scope(|scope| {
        let slow = scope.spawn(|| charge("anna", "slow"));
        eventually("the slow one is running", || (service.effects() == 1).then_some(()));
        let refused = charge("anna", "new");
        assert_eq!(refused.problem(), (429, "quota-exceeded".into()));
        assert!(refused.field("retry-after").is_some(), "{refused:?}");
        assert_eq!(charge("bert", "new").status, 201);
        go.send(()).unwrap();
        assert_eq!(slow.join().unwrap().status, 201);
    });
    assert_eq!(charge("anna", "new").status, 201);
}

#[test]
fn a_problem_has_all_its_members_and_the_status_that_the_route_wants() {
    let (_home, _service, gateway) =
        stage("[defaults]\nkey = \"required\"\nproblem_status = { key-missing = 428 }");
    let refused = gateway.post("/charges", &[], "{}");
    assert_eq!(refused.problem(), (428, "key-missing".into()));
    let problem = refused.json();
    assert!(problem["instance"].as_str().is_some_and(|it| it.starts_with("urn:uuid:")), "{problem}");
    assert_eq!(problem["retryable"], false);
    let link = refused.field("link").unwrap();
    assert!(link.contains("</.well-known/idempotency>") && link.contains("describedby"), "{link}");
}

#[test]
fn a_replay_has_the_same_fields_in_the_same_order_except_volatile_ones() {
    const FIELDS: &str = "X-B: 1\r\nX-A: 2\r\nX-B: 3\r\nLocation: /charges/1\r\n";
    let service = Service::start(|_| {
        let moment = "Set-Cookie: a=b\r\nWWW-Authenticate: Basic\r\nKeep-Alive: timeout=5\r\nX-Trace: 7\r\n\
                      Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
        Reply::Raw(
            format!("HTTP/1.1 201 Created\r\n{FIELDS}{moment}Content-Length: 2\r\n\r\nok").into_bytes(),
        )
    });
    let home = Home::new();
    home.write_config(
        "[defaults]\nomit_fields = [\"X-Trace\"]\n[[route]]\npath = \"/cookies\"\nreplay_cookies = true",
    );
    let gateway = home.start(&service.url());
    let kept = |answer: &Answer| {
        let of_service = |(name, _): &&(String, String)| name.starts_with("x-") || name == "location";
        answer.fields.iter().filter(of_service).cloned().collect::<Vec<_>>()
    };
    let (first, again) = (keyed(&gateway, "/charges", &[], "{}"), keyed(&gateway, "/charges", &[], "{}"));
    assert!(!replayed(&first) && replayed(&again));
    assert_eq!((first.field("set-cookie"), first.field("x-trace")), (Some("a=b"), Some("7")));
    let expected: Vec<_> = kept(&first).into_iter().filter(|(name, _)| name != "x-trace").collect();
    assert_eq!((kept(&again), expected.len()), (expected, 4), "{first:?}");
    for name in ["set-cookie", "www-authenticate", "keep-alive", "x-trace"] {
        assert_eq!(again.field(name), None, "{again:?}");
    }
    assert_ne!(again.field("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert_eq!(
        (&again.body, again.field("idempotency-expires")),
        (&first.body, first.field("idempotency-expires"))
    );
    keyed(&gateway, "/cookies", &[], "{}");
    assert_eq!(keyed(&gateway, "/cookies", &[], "{}").field("set-cookie"), Some("a=b"));
    assert_eq!(service.effects(), 2);
}

const PRESETS: &str = "[[route]]\npath = \"/stripe\"\npreset = \"stripe\"\n\
                       [[route]]\npath = \"/stripe-lost\"\npreset = \"stripe\"\n\
                       [[route]]\npath = \"/transactional\"\npreset = \"transactional\"\n\
                       [[route]]\npath = \"/transactional-lost\"\npreset = \"transactional\"\n\
                       [[route]]\npath = \"/queue\"\npreset = \"queue\"\n\
                       [[route]]\npath = \"/ledger\"\npreset = \"ledger\"\n";

#[test]
fn presets_differ_in_which_failures_they_keep() {
    let service = Service::start(|request| {
        let status = if request.body == b"[503]" { 503 } else { 500 };
        Reply::Answer(status, "no".into())
    });
    let home = Home::new();
    home.write_config(PRESETS);
    let gateway = home.start(&service.url());
    for (path, body, again, effects) in [
        ("/stripe", "[500]", 500, 1),
        ("/stripe-lost", "[503]", 503, 1),
        ("/queue", "[500]", 500, 2),
        ("/ledger", "[500]", 500, 1),
        ("/ietf", "[500]", 500, 1),
        ("/ietf-lost", "[503]", 409, 1),
        ("/transactional", "[500]", 500, 2),
        ("/transactional-lost", "[503]", 409, 1),
    ] {
        let before = service.effects();
        assert!(keyed(&gateway, path, &[], body).status >= 500);
        assert_eq!(keyed(&gateway, path, &[], body).status, again, "{path}");
        assert_eq!(service.effects() - before, effects, "{path}");
    }
}

#[test]
fn a_preset_keeps_an_answer_for_as_long_as_it_says() {
    let (_home, _service, gateway) = stage(PRESETS);
    for (path, days) in [("/stripe", Some(1)), ("/queue", Some(7)), ("/ledger", None), ("/ietf", Some(1))] {
        let answer = keyed(&gateway, path, &[], "{}");
        let at = |name| answer.field(name).map(|date| httpdate::parse_http_date(date).unwrap());
        let promised = at("idempotency-expires").map(|at_last| at_last.duration_since(at("date").unwrap()));
        let Some(days) = days else {
            assert!(promised.is_none(), "{path}: forever");
            continue;
        };
        // The answer may have been under way for a while, and both dates are in whole seconds.
        let whole = Duration::from_secs(days * 86_400);
        let range = whole.saturating_sub(Duration::from_secs(60))..=whole + Duration::from_secs(1);
        let promised = promised.expect("it expires").unwrap();
        assert!(range.contains(&promised), "{path}: {promised:?}");
    }
}
