//! Tests of path patterns.

use super::Pattern;

fn check(pattern: &str, matching: &[&str], others: &[&str]) {
    let pattern: Pattern = pattern.parse().unwrap();
    for path in matching {
        assert!(pattern.matches(path), "{pattern} should match {path}");
    }
    for path in others {
        assert!(!pattern.matches(path), "{pattern} should not match {path}");
    }
}

#[test]
fn a_plain_path_matches_only_itself() {
    check("/charges", &["/charges"], &["/charges/", "/charges/1", "/Charges", "/", "charges", "//charges"]);
    check("/", &["/"], &["/a", ""]);
}

#[test]
fn a_name_in_braces_matches_one_segment() {
    check(
        "/orders/{id}",
        &["/orders/7", "/orders/a%2Fb"],
        &["/orders/", "/orders", "/orders/7/", "/orders/7/refunds"],
    );
    check("/orders/{id}/refunds", &["/orders/7/refunds"], &["/orders//refunds", "/orders/7/refunds/1"]);
}

#[test]
fn a_star_matches_any_number_of_segments() {
    check("/api/*", &["/api/", "/api/a/b", "/api"], &["/apis", "/"]);
    check("/*", &["/", "/a", "/a/b"], &["", "*"]);
}

#[test]
fn an_invalid_pattern_is_refused() {
    for wrong in ["", "charges", "/a*", "/*/a", "/a/{", "/a/{}", "/a/x{y}", "/a?b", "/{a}{b}"] {
        assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
    }
}
