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
fn a_plain_path_is_itself() {
    check("/charges", &["/charges"], &["/charges/", "/charges/1", "/Charges", "/", "charges", "//charges"]);
    check("/", &["/"], &["/a", ""]);
}

#[test]
fn a_name_in_braces_is_one_segment() {
    check(
        "/orders/{id}",
        &["/orders/7", "/orders/a%2Fb"],
        &["/orders/", "/orders", "/orders/7/", "/orders/7/refunds"],
    );
    check("/orders/{id}/refunds", &["/orders/7/refunds"], &["/orders//refunds", "/orders/7/refunds/1"]);
}

#[test]
fn a_star_is_whatever_follows() {
    check("/api/*", &["/api/", "/api/a/b", "/api"], &["/apis", "/"]);
    check("/*", &["/", "/a", "/a/b"], &["", "*"]);
}

#[test]
fn what_cannot_match_is_refused() {
    for wrong in ["", "charges", "/a*", "/*/a", "/a/{", "/a/{}", "/a/x{y}", "/a?b", "/{a}{b}"] {
        assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
    }
}
