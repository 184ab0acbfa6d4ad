use super::{Place, Trust};

fn parse(text: &str) -> crate::endpoint::Result<Place> {
    Place::parse(text, &Trust::new(None))
}

#[test]
fn a_url_is_taken_apart() {
    let place = parse("http://127.0.0.1:3000/charges?a=1").unwrap();
    assert_eq!((place.host(), place.target()), ("127.0.0.1", "/charges?a=1"));
    assert_eq!(place.authority(), "127.0.0.1:3000");
    assert_eq!(parse("http://[::1]:8/x").unwrap().authority(), "[::1]:8");
    assert_eq!(parse("http://app").unwrap().target(), "/");
    assert_eq!(parse("http://app").unwrap().authority(), "app");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    for text in ["", "charges", "/charges", "ftp://app/", "http:///x", "http://a b/"] {
        assert!(parse(text).is_err(), "{text:?} was taken");
    }
}

#[test]
fn only_plain_hosts_are_plainly_ones_own() {
    for own in ["127.0.0.1", "127.9.9.9", "10.1.2.3", "192.168.0.7", "172.16.0.1", "[::1]", "[fd00::1]"] {
        assert!(parse(&format!("http://{own}/")).unwrap().is_own(), "{own} is one's own");
    }
    for own in ["localhost", "payments", "api.localhost"] {
        assert!(parse(&format!("http://{own}/")).unwrap().is_own(), "{own} is one's own");
    }
    for other in ["8.8.8.8", "172.32.0.1", "example.com", "localhost.example.com", "[2001:db8::1]"] {
        assert!(!parse(&format!("http://{other}/")).unwrap().is_own(), "{other} may be anybody's");
    }
}
