//! Unknown outcomes that are resolved by asking the service.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Received, Reply, Service};
use crate::process::{Answer, eventually, onceward};

/// A service that disconnects on every charge, and gives this reply when it is asked for the outcome.
fn unknown_outcome(about: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static) -> (Service, Home) {
    let asked = AtomicUsize::new(0);
    let service = Service::start(move |request| {
        if request.line.starts_with("GET /about") {
            assert!(request.field("onceward-fence").is_some());
            about(asked.fetch_add(1, Ordering::SeqCst), request)
        } else {
            Reply::Raw(Vec::new())
        }
    });
    let home = Home::new();
    home.write_config(
        "[defaults]\non_unknown = \"reconcile\"\nreconcile_url = \"/about/{key}\"\nanswer_timeout = \"1s\"\n\
         [[route]]\npath = \"/tenants\"\nscope = \"header:X-Tenant\"\n",
    );
    (service, home)
}

fn charges(service: &Service) -> usize {
    service.received().iter().filter(|request| request.line.starts_with("POST")).count()
}

fn questions(service: &Service) -> Vec<Received> {
    service.received().into_iter().filter(|request| request.line.starts_with("GET")).collect()
}

/// Sends the charge again until its outcome is known.
fn ask_until_known(send: impl Fn() -> Answer) -> Answer {
    eventually("the outcome is known", || {
        let answer = send();
        if answer.status != 409 {
            return Some(answer);
        }
        assert_eq!(answer.problem().1, "outcome-unknown");
        assert!(answer.field("retry-after").is_some(), "{answer:?}");
        None
    })
}

fn raw(answer: &str) -> Reply {
    Reply::Raw(format!("HTTP/1.1 {answer}").into_bytes())
}

#[test]
fn an_effect_that_happened_becomes_the_answer() {
    let (service, home) = unknown_outcome(|asked, request| {
        assert!(request.line.starts_with("GET /about/a%2Fb "), "{}", request.line);
        match asked {
            0 => Reply::Answer(202, String::new()),
            _ => raw("200 OK\r\nOnceward-Status: 201\r\nX-Made: before\r\nContent-Length: 4\r\n\r\ndone"),
        }
    });
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("a/b", "{}").problem(), (504, "upstream-timeout".into()));
    let answer = ask_until_known(|| gateway.charge("a/b", "{}"));
    assert_eq!((answer.status, answer.body.as_str(), answer.field("x-made")), (201, "done", Some("before")));
    assert_eq!((answer.field("idempotent-replayed"), answer.field("onceward-status")), (Some("true"), None));
    assert_eq!(charges(&service), 1);
}

#[test]
fn a_service_that_knows_it_did_not_happen_frees_the_key() {
    let (service, home) =
        unknown_outcome(|_, _| raw("404 Not Found\r\nOnceward-Status: none\r\nContent-Length: 0\r\n\r\n"));
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("a", "{}").problem(), (504, "upstream-timeout".into()));
    let began = Instant::now();
    assert_eq!(ask_until_known(|| gateway.charge("a", "{}")).problem(), (504, "upstream-timeout".into()));
    assert_eq!(charges(&service), 2);
    // It is not believed while the earlier request can still take effect.
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}

/// Not even in part: of a short key a part is the whole.
#[test]
fn no_key_is_in_the_log() {
    const KEY: &str = "Zq7x";
    let (service, home) =
        unknown_outcome(|_, _| raw("200 OK\r\nOnceward-Status: 201\r\nContent-Length: 4\r\n\r\ndone"));
    let log = home.folder.path().join("log");
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", &store]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "info", "--config"]);
    command.arg(home.config()).stderr(std::fs::File::create(&log).unwrap());
    let gateway = Gateway::spawn(command);
    assert_eq!(gateway.charge(KEY, "{}").problem(), (504, "upstream-timeout".into()));
    assert_eq!(ask_until_known(|| gateway.charge(KEY, "{}")).status, 201);
    let hash = &blake3::hash(KEY.as_bytes()).to_hex()[..12];
    let said = eventually("both are in the log", || {
        let said = std::fs::read_to_string(&log).unwrap();
        let is_there = |text: &str| said.lines().any(|line| line.contains(text) && line.contains(hash));
        let both = is_there("an outcome is unknown") && is_there("an unknown outcome was settled");
        both.then_some(said)
    });
    assert!(!said.contains(KEY), "{said}");
}

/// A service that keeps its charges by tenant, host and session must be asked as the same caller.
#[test]
fn the_question_has_the_fields_of_the_request_that_asks() {
    let (service, home) = unknown_outcome(|_, request| match request.field("x-tenant") {
        Some("acme") => raw("200 OK\r\nOnceward-Status: 201\r\nContent-Length: 7\r\n\r\ncharged"),
        _ => raw("404 Not Found\r\nOnceward-Status: none\r\nContent-Length: 0\r\n\r\n"),
    });
    let gateway = home.start(&service.url());
    let fields = [
        ("Idempotency-Key", "r1"),
        ("X-Tenant", "acme"),
        ("Authorization", "Bearer one"),
        ("Cookie", "session=1"),
        ("Host", "acme.example"),
        ("X-Hop", "1"),
        ("Connection", "X-Hop"),
    ];
    let send = || gateway.post("/tenants", &fields, "{}");
    assert_eq!(send().status, 504);
    let answer = ask_until_known(send);
    assert_eq!((answer.status, answer.body.as_str()), (201, "charged"));
    assert_eq!(charges(&service), 1);
    let asked = &questions(&service)[0];
    for (name, value) in &fields[1..5] {
        assert_eq!(asked.field(&name.to_lowercase()), Some(*value), "{asked:?}");
    }
    for name in ["x-hop", "content-type", "content-length"] {
        assert_eq!(asked.field(name), None, "{asked:?}");
    }
}

/// Two gateways would not agree on what a page proves, so a page proves nothing.
#[test]
fn an_answer_without_the_status_field_proves_nothing() {
    const PAGES: [&str; 4] = [
        "404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "200 OK\r\nContent-Length: 7\r\n\r\nwelcome",
        "200 OK\r\nOnceward-Status: none\r\nContent-Length: 0\r\n\r\n",
        "404 Not Found\r\nOnceward-Status: 201\r\nContent-Length: 0\r\n\r\n",
    ];
    let (service, home) = unknown_outcome(|asked, _| raw(PAGES[asked % PAGES.len()]));
    let gateway = home.start(&service.url());
    assert_eq!(gateway.charge("a", "{}").status, 504);
    // Until the last of them was given after everything would be believed.
    let began = Instant::now();
    eventually("each page was given late enough", || {
        assert_eq!(gateway.charge("a", "{}").problem(), (409, "outcome-unknown".into()));
        let late = began.elapsed() > Duration::from_millis(1_500);
        (late && questions(&service).len() >= 2 * PAGES.len()).then_some(())
    });
    assert_eq!(charges(&service), 1);
}

/// They would make the question one about something else: the list of all charges, for example.
#[test]
fn keys_that_are_dots_are_not_asked_about() {
    let (service, home) =
        unknown_outcome(|_, _| raw("200 OK\r\nOnceward-Status: 201\r\nContent-Length: 3\r\n\r\nall"));
    let gateway: Gateway = home.start(&service.url());
    for key in [".", ".."] {
        for status in [504, 409, 409] {
            assert_eq!(gateway.charge(key, "{}").status, status, "{key}");
        }
    }
    assert_eq!(gateway.charge("plain", "{}").status, 504);
    assert_eq!(ask_until_known(|| gateway.charge("plain", "{}")).status, 201);
    assert_eq!(questions(&service).len(), 1, "the others were not asked about");
}
