use super::*;

#[test]
fn what_an_address_says_is_found_and_the_rest_is_left() {
    let url = "postgres://a@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fmy%20ca.pem";
    let (rest, settings) = TlsSettings::take(url).unwrap();
    assert_eq!(rest, "postgres://a@h/d?connect_timeout=3");
    assert_eq!(settings.mode, Some(SslMode::VerifyFull));
    assert_eq!(settings.root_cert, Some("/etc/my ca.pem".into()));
    let (rest, settings) = TlsSettings::take("mysql://a@h/d?sslcert=c&sslkey=k").unwrap();
    assert_eq!((rest.as_str(), settings.client), ("mysql://a@h/d", Some(("c".into(), "k".into()))));
    for untouched in ["postgres://a@h/d", "host=h sslmode=disable", "postgres://a@h/d?options=-c%20x"] {
        assert_eq!(TlsSettings::take(untouched).unwrap(), (untouched.to_owned(), TlsSettings::default()));
    }
}

#[test]
fn mistakes_are_named() {
    for (url, word) in [
        ("postgres://h/d?sslmode=verify", "there are disable, prefer, require, verify-ca, verify-full"),
        ("postgres://h/d?sslcert=c", "belong together"),
    ] {
        let error = TlsSettings::take(url).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn local_hosts_are_known() {
    for host in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "/run/postgresql"] {
        assert!(is_local(host), "{host}");
    }
    for host in ["db.example", "10.0.0.1", "localhost.example", "0.0.0.0"] {
        assert!(!is_local(host), "{host}");
    }
}
