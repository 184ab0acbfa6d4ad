//! Tests of the CORS fields of answers.

use super::*;

const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://other.example";

fn page(origin: &str) -> FromBrowser {
    FromBrowser::of(&Request::post("/").header(ORIGIN, origin).body(()).unwrap())
}

fn preflight(origin: &str, asked: &str) -> FromBrowser {
    let request = Request::builder()
        .method(Method::OPTIONS)
        .header(ORIGIN, origin)
        .header(ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(ACCESS_CONTROL_REQUEST_HEADERS, asked);
    FromBrowser::of(&request.body(()).unwrap())
}

fn shop() -> AllowedOrigins {
    AllowedOrigins::new([SHOP]).unwrap()
}

/// The fields of an answer that had these, all lines of one name joined.
fn fields(from: &FromBrowser, allowed: Option<&AllowedOrigins>, own: &[(&'static str, &str)]) -> Vec<String> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    for (name, value) in own {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    let response = from.complete(allowed, response, || ());
    let headers = response.headers();
    let joined = headers.keys().map(|name| {
        let lines: Vec<&str> = headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect();
        format!("{name}: {}", lines.join(", "))
    });
    let mut joined: Vec<String> = joined.collect();
    joined.sort();
    joined.insert(0, response.status().as_u16().to_string());
    joined
}

const OURS: &str = "idempotency-expires, idempotent-replayed, onceward-recorded, onceward-unguarded, retry-after, link, \
                    location, etag";

#[test]
fn an_answer_to_an_allowed_page_can_be_read() {
    let expected = [
        "405",
        &format!("access-control-allow-origin: {SHOP}"),
        &format!("access-control-expose-headers: {OURS}"),
        "vary: Origin",
    ];
    assert_eq!(fields(&page(SHOP), Some(&shop()), &[]), expected);
    assert_eq!(fields(&page(OTHER), Some(&shop()), &[]), ["405", "vary: Origin"]);
    assert_eq!(fields(&page(SHOP), None, &[]), ["405"]);
    assert_eq!(fields(&FromBrowser::default(), Some(&shop()), &[]), ["405"]);
    let any = AllowedOrigins::new(["*"]).unwrap();
    assert!(fields(&page(OTHER), Some(&any), &[]).contains(&"access-control-allow-origin: *".to_owned()));
}

#[test]
fn a_preflight_names_the_key_and_is_answered_here_if_the_service_does_not() {
    let expected = [
        "204",
        "access-control-allow-headers: content-type, idempotency-key, onceward-try",
        "access-control-allow-methods: POST",
        &format!("access-control-allow-origin: {SHOP}"),
        "access-control-max-age: 600",
        "vary: Origin",
    ];
    assert_eq!(fields(&preflight(SHOP, "content-type"), Some(&shop()), &[("x-own", "1")]), expected);
    assert_eq!(fields(&preflight(OTHER, "content-type"), Some(&shop()), &[]), ["405", "vary: Origin"]);
}

#[test]
fn a_service_with_its_own_rules_keeps_them() {
    let own = [("access-control-allow-origin", SHOP), ("access-control-allow-headers", "Content-Type")];
    let expected = [
        "405",
        "access-control-allow-headers: Content-Type, idempotency-key, onceward-try",
        &format!("access-control-allow-origin: {SHOP}"),
    ];
    assert_eq!(fields(&preflight(SHOP, "idempotency-key"), Some(&shop()), &own), expected);
    let all = [("access-control-allow-origin", SHOP), ("access-control-allow-headers", "*")];
    assert!(
        fields(&preflight(SHOP, "x"), Some(&shop()), &all)
            .contains(&"access-control-allow-headers: *".into())
    );
    // Without a setting nothing is changed.
    assert_eq!(fields(&preflight(SHOP, "x"), None, &own).len(), 3);
}

#[test]
fn what_was_stored_for_one_origin_is_not_replayed_to_another() {
    let stored = [
        ("idempotent-replayed", "true"),
        ("access-control-allow-origin", SHOP),
        ("access-control-allow-credentials", "true"),
        ("x-charge", "1"),
    ];
    assert_eq!(fields(&page(SHOP), None, &stored).len(), 5);
    let others = ["405", "idempotent-replayed: true", "x-charge: 1"];
    assert_eq!(fields(&page(OTHER), None, &stored), others);
    assert_eq!(fields(&FromBrowser::default(), None, &stored), others);
    // A first run is the service's own answer.
    assert_eq!(fields(&page(OTHER), None, &stored[1..]).len(), 4);
    // Another page that the route allows gets its own.
    let both = AllowedOrigins::new([SHOP, OTHER]).unwrap();
    let shown = fields(&page(OTHER), Some(&both), &stored);
    assert!(shown.contains(&format!("access-control-allow-origin: {OTHER}")), "{shown:?}");
    assert!(!shown.iter().any(|field| field.contains("credentials")), "{shown:?}");
    let any = [("idempotent-replayed", "true"), ("access-control-allow-origin", "*")];
    assert_eq!(fields(&page(OTHER), None, &any).len(), 3);
}

#[test]
fn only_origins_are_taken() {
    for origin in ["https://a.example", "http://localhost:3000", "*", "app://shop"] {
        assert!(AllowedOrigins::new([origin]).is_ok(), "{origin}");
    }
    for wrong in [
        "",
        "a.example",
        "https://a.example/",
        "https://a.example/x",
        "https://A.example",
        "https://u@a",
        "*.a",
    ] {
        assert!(AllowedOrigins::new([wrong]).is_err(), "{wrong}");
    }
    assert!(AllowedOrigins::new(Vec::<String>::new()).is_err());
}
