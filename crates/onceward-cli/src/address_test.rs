//! Tests of parsing addresses.

use super::{ListenAddress, with_scheme};

#[test]
fn an_address_to_listen_on_has_a_short_form() {
    for (written, address) in [
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[::1]:8080", "[::1]:8080"),
        ("localhost:8080", "127.0.0.1:8080"),
        ("LocalHost:0", "127.0.0.1:0"),
        (":8080", "0.0.0.0:8080"),
    ] {
        assert_eq!(written.parse::<ListenAddress>().unwrap().to_string(), address, "{written}");
    }
}

#[test]
fn anything_else_is_refused_with_the_forms_that_are_known() {
    for written in
        ["", ":", "8080", "localhost", "localhost:", ":+80", ":65536", "db.example:80", "http://a:1"]
    {
        let error = written.parse::<ListenAddress>().unwrap_err();
        for form in ["127.0.0.1:8080", "[::1]:8080", "localhost:8080", "`:8080`"] {
            assert!(error.contains(form), "{written}: {error}");
        }
    }
}

#[test]
fn a_service_is_named_with_or_without_its_scheme() {
    for (written, url) in [
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("https://pay.example/charges", "https://pay.example/charges"),
        ("localhost:3000", "http://localhost:3000"),
        ("localhost:3000/charges?x=a:1", "http://localhost:3000/charges?x=a:1"),
        ("[::1]:3000/", "http://[::1]:3000/"),
        (":3000/charges", "http://127.0.0.1:3000/charges"),
        ("ftp://a:21", "ftp://a:21"),
        ("pay.example", "pay.example"),
        ("", ""),
    ] {
        assert_eq!(with_scheme(written), url);
    }
}
