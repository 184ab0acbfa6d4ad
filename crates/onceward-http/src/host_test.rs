//! Tests of the host of a request.

use http::Request;

use super::*;

fn host(target: &str, field: Option<&str>) -> Option<String> {
    let mut request = Request::builder().uri(target);
    if let Some(field) = field {
        request = request.header(HOST, field);
    }
    let request = request.body(()).unwrap();
    of(request.uri(), request.headers(), RequestFields::of(request.headers()), None)
        .map(|host| String::from_utf8(plain(host).to_vec()).unwrap())
}

#[test]
fn the_target_counts_before_the_field() {
    assert_eq!(host("http://a.example/x", Some("b.example")).as_deref(), Some("a.example"));
    assert_eq!(host("/x", Some("b.example")).as_deref(), Some("b.example"));
    assert_eq!((host("/x", None), host("/x", Some(" "))), (None, None));
}

#[test]
fn spellings_of_one_host_are_equal() {
    for same in ["a.example", "a.example:80", "a.example:443", "a.example:", "a.example.", "a.example.:443"] {
        assert_eq!(host("/", Some(same)).as_deref(), Some("a.example"), "{same}");
    }
    for other in ["a.example:8080", "b.example", "[::1]", "[::80]"] {
        assert_eq!(host("/", Some(other)).as_deref(), Some(other));
    }
    assert_eq!(host("http://user:word@a.example:80/", None).as_deref(), Some("a.example"));
}

#[test]
fn the_word_of_a_trusted_proxy_counts_first() {
    let request = Request::builder().uri("http://balancer/x").header(HOST, "balancer").body(()).unwrap();
    let forwarded = ForwardedHost("shop.example:443".into());
    let host = of(request.uri(), request.headers(), RequestFields::default(), Some(&forwarded)).unwrap();
    assert_eq!(plain(host), b"shop.example");
}
