//! Pages in browsers: preflights, refusals that they can read, and replays to another origin.

use super::stage::{Home, Reply, Service};
use crate::process::{Answer, send};

const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";

fn home() -> Home {
    let home = Home::new();
    home.write_config(&format!(
        "[[route]]\npath = \"/charges\"\nmethods = [\"POST\"]\nkey = \"required\"\nallow_origins = [\"{SHOP}\"]"
    ));
    home
}

fn list(answer: &Answer, name: &str) -> String {
    let lines =
        answer.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.to_lowercase());
    lines.collect::<Vec<_>>().join(",")
}

fn preflight(address: std::net::SocketAddr, origin: &str) -> Answer {
    let fields = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type,idempotency-key"),
    ];
    send(address, "OPTIONS", "/charges", &fields, "")
}

/// The route is that of the method that the page wants to use.
#[test]
fn a_preflight_names_the_key_also_where_the_service_knows_nothing_of_it() {
    let (home, service) = (home(), Service::start(|_| Reply::Answer(405, String::new())));
    let gateway = home.start(&service.url());
    let answer = preflight(gateway.address, SHOP);
    assert_eq!((answer.status, answer.field("access-control-allow-origin")), (204, Some(SHOP)));
    assert!(list(&answer, "access-control-allow-headers").contains("idempotency-key"), "{answer:?}");
    assert_eq!(list(&answer, "vary"), "origin");
    let answer = preflight(gateway.address, OTHER);
    assert_eq!((answer.status, answer.field("access-control-allow-origin")), (405, None));
}

#[test]
fn a_service_with_its_own_rules_answers_preflights_itself() {
    let own = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: https://shop.example\r\n\
               Access-Control-Allow-Headers: content-type\r\nContent-Length: 3\r\n\r\nown";
    let (home, service) = (home(), Service::start(move |_| Reply::Raw(own.into())));
    let gateway = home.start(&service.url());
    let answer = preflight(gateway.address, SHOP);
    assert_eq!((answer.status, &*answer.body), (200, "own"));
    assert_eq!(list(&answer, "access-control-allow-headers"), "content-type,idempotency-key,onceward-try");
}

#[test]
fn refusals_can_be_read_by_the_page_also_those_before_a_route_is_chosen() {
    let (home, service) = (home(), Service::charging());
    let gateway = home.start(&service.url());
    let missing = gateway.post("/charges", &[("Origin", SHOP)], "{}");
    assert_eq!(missing.problem(), (400, "key-missing".into()));
    assert_eq!(missing.field("access-control-allow-origin"), Some(SHOP));
    assert!(list(&missing, "access-control-expose-headers").contains("retry-after"), "{missing:?}");
    let stranger = gateway.post("/charges", &[("Origin", OTHER)], "{}");
    assert_eq!((stranger.status, stranger.field("access-control-allow-origin")), (400, None));
    let fields = [("Origin", SHOP), ("Transfer-Encoding", "gzip, chunked")];
    let early = gateway.raw(
        format!(
            "POST /charges HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}: {}\r\n{}: {}\r\n\r\n0\r\n\r\n",
            fields[0].0, fields[0].1, fields[1].0, fields[1].1
        )
        .as_bytes(),
    );
    assert!(early.starts_with("HTTP/1.1 501"), "{early}");
    assert!(early.to_lowercase().contains("access-control-allow-origin: https://shop.example"), "{early}");
    assert_eq!(service.effects(), 0);
}

#[test]
fn what_the_service_said_to_one_origin_is_not_replayed_to_another() {
    let raw = "HTTP/1.1 201 Fine\r\nAccess-Control-Allow-Origin: https://shop.example\r\n\
               Access-Control-Allow-Credentials: true\r\nX-Charge: 1\r\nContent-Length: 2\r\n\r\n{}";
    let (home, service) = (Home::new(), Service::start(move |_| Reply::Raw(raw.into())));
    let gateway = home.start(&service.url());
    let by = |origin| {
        let fields = [("Idempotency-Key", "k-12345678"), ("Authorization", "Bearer me"), ("Origin", origin)];
        gateway.post("/charges", &fields, "{}")
    };
    assert_eq!(by(SHOP).field("access-control-allow-origin"), Some(SHOP));
    let (same, other) = (by(SHOP), by(OTHER));
    assert_eq!(same.field("idempotent-replayed"), Some("true"));
    assert_eq!(same.field("access-control-allow-credentials"), Some("true"));
    assert_eq!((other.field("idempotent-replayed"), other.field("x-charge")), (Some("true"), Some("1")));
    assert!(!other.fields.iter().any(|(name, _)| name.starts_with("access-control-")), "{other:?}");
    assert_eq!(service.effects(), 1);
}

/// Behind a balancer that writes its own name into `Host`, virtual hosts are told by `X-Forwarded-Host`.
#[test]
fn the_host_that_a_trusted_proxy_names_separates_tenants() {
    for (trusted, tenants) in [(true, 2), (false, 1)] {
        let (home, service) = (Home::new(), Service::charging());
        home.write_config("[[route]]\npath = \"/charges\"\nscope = \"host\"");
        let flags: &[&str] = if trusted { &["--trusted-proxies", "127.0.0.1"] } else { &[] };
        let gateway = home.start_with(&service.url(), flags);
        let on = |host| {
            let fields =
                [("Idempotency-Key", "same-key-1"), ("Host", "balancer"), ("X-Forwarded-Host", host)];
            gateway.post("/charges", &fields, "{}")
        };
        let answers = [on("a.example"), on("b.example, inner"), on("A.example:443")];
        assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
        assert_eq!(service.effects(), tenants, "trusted: {trusted}");
        assert_eq!(answers[2].body, answers[0].body);
    }
}

/// The fingerprint too: the same key for another host is refused.
#[test]
fn the_same_key_for_another_forwarded_host_is_refused() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start_with(&service.url(), &["--trusted-proxies", "127.0.0.1"]);
    let on = |host| {
        let fields = [("Idempotency-Key", "k"), ("Authorization", "Bearer me"), ("X-Forwarded-Host", host)];
        gateway.post("/charges", &fields, "{}")
    };
    assert_eq!(on("a.example").status, 201);
    assert_eq!(on("b.example").problem(), (422, "key-reused".into()));
    assert_eq!(on("a.example").field("idempotent-replayed"), Some("true"));
    assert_eq!(service.effects(), 1);
}
