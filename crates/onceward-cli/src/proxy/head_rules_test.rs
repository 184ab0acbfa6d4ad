use super::super::path_rules::{PathParameters, Spelling};
use super::*;

const RULES: PathRules = PathRules {
    normalise: true,
    case: Spelling::Exact,
    trailing_slash: Spelling::Exact,
    parameters: PathParameters::Refuse,
};

fn request(target: &str, lines: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::post(target).body(()).unwrap();
    for (name, value) in lines {
        let name = HeaderName::try_from(*name).unwrap();
        request.headers_mut().append(name, HeaderValue::try_from(*value).unwrap());
    }
    request
}

#[track_caller]
fn checked(target: &str, lines: &[(&str, &str)], trusted: bool) -> Result<Request<()>, u16> {
    let mut request = request(target, lines);
    check(&mut request, RULES, UnderscoreFields::Removed, trusted)
        .map(|()| request)
        .map_err(|(status, _)| status.as_u16())
}

#[test]
fn a_request_has_one_host_without_credentials() {
    assert!(checked("/", &[("host", "shop.example:8080")], false).is_ok());
    assert!(checked("/", &[("host", "[::1]:80")], false).is_ok());
    assert!(checked("http://shop.example/", &[], false).is_ok());
    assert_eq!(checked("/", &[], false).unwrap_err(), 400);
    assert_eq!(checked("/", &[("host", "a"), ("host", "a")], false).unwrap_err(), 400);
    for host in ["u:p@h", "a b", "a/b", "a?b"] {
        assert_eq!(checked("/", &[("host", host)], false).unwrap_err(), 400, "{host}");
    }
    assert_eq!(checked("http://u:p@h/", &[("host", "h")], false).unwrap_err(), 400);
}

#[test]
fn only_chunked_is_a_transfer_coding() {
    for (value, status) in [("chunked", None), ("gzip, chunked", Some(501)), ("identity", Some(501))] {
        let found = checked("/", &[("host", "a"), ("transfer-encoding", value)], false).err();
        assert_eq!(found, status, "{value}");
    }
}

const UNDERSCORES: [(&str, &str); 12] = [
    ("host", "a"),
    ("onceward_fence", "99"),
    ("idempotency_key", "k"),
    ("x_forwarded_for", "1.2.3.4"),
    ("content_length", "3"),
    ("x_http_method_override", "DELETE"),
    ("x_api_key", "evil"),
    ("if_match", "1"),
    ("x_order_key", "evil"),
    ("x-tenant", "acme"),
    ("x_tenant", "evil"),
    ("my_own", "1"),
];

fn names(request: &Request<()>) -> Vec<&str> {
    let mut names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn fields_with_an_underscore_are_removed() {
    assert_eq!(names(&checked("/", &UNDERSCORES, true).unwrap()), ["host", "x-tenant"]);
}

#[test]
fn where_underscores_pass_what_looks_like_a_field_that_is_read_is_removed() {
    // The route's own field may have one too.
    let read = [HeaderName::from_static("x-order_key")];
    let mut request = request("/", &UNDERSCORES);
    check(&mut request, RULES, UnderscoreFields::PassedUnlessRead(&read), true).unwrap();
    assert_eq!(names(&request), ["host", "my_own", "x-tenant"]);
}

#[test]
fn forwarded_fields_count_only_from_a_trusted_proxy() {
    let lines = [
        ("host", "a"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "1.2.3.4"),
        ("forwarded", "for=1.2.3.4"),
    ];
    assert_eq!(checked("/", &lines, false).unwrap().headers().len(), 1);
    assert_eq!(checked("/", &lines, true).unwrap().headers().len(), lines.len());
}

#[test]
fn cookies_arrive_as_one_field() {
    let request = checked("/", &[("host", "a"), ("cookie", "a=1"), ("cookie", "b=2")], false).unwrap();
    let lines: Vec<_> = request.headers().get_all(COOKIE).iter().collect();
    assert_eq!(lines, ["a=1; b=2"]);
}

#[test]
fn the_compared_and_the_forwarded_path_may_differ() {
    let rules = PathRules { case: Spelling::Ignore, ..RULES };
    let mut request = request("/Charges?A=B", &[("host", "a")]);
    check(&mut request, rules, UnderscoreFields::Removed, false).unwrap();
    assert_eq!(request.uri(), "/charges?A=B");
    assert_eq!(request.extensions().get::<ForwardedPath>().unwrap().0, "/Charges?A=B");
    let decoded = checked("/%63harges", &[("host", "a")], false).unwrap();
    assert_eq!(decoded.uri(), "/charges");
    assert!(decoded.extensions().get::<ForwardedPath>().is_none());
}

#[test]
fn the_client_behind_trusted_proxies_is_the_last_one_that_they_did_not_add() {
    let trusted: Networks = "10.0.0.0/8".parse().unwrap();
    let find = |peer: &str, line: &str| {
        let headers = request("/", &[("x-forwarded-for", line)]).headers().clone();
        client_address(&headers, peer.parse().unwrap(), &trusted).map(|address| address.to_string())
    };
    assert_eq!(find("192.0.2.1", "1.2.3.4").as_deref(), Some("192.0.2.1"));
    assert_eq!(find("10.0.0.1", "6.6.6.6, 192.0.2.9, 10.0.0.7").as_deref(), Some("192.0.2.9"));
    assert_eq!(find("10.0.0.1", "10.0.0.7"), None);
    assert_eq!(find("10.0.0.1", "unknown"), None);
}
