//! Which multipart bodies are one, and which are not taken apart at all. In these tables `|` is a line
//! end and `@` the boundary with its dashes.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const FIELD: &str = "content-disposition: form-data; name=\"a\"";

#[test]
fn one_body() {
    same("@|F||1|@--|", "@|F||1|@--");
    same("@|F||1|@--|", "|@ \t|F||1|@-- |");
    same("@|F||1|@--|", "@|Content-Disposition:form-data; name=\"a\" ||1|@--|");
    same("@|F|content-type: a/b||1|@--|", "@|Content-Type: a/b|F||1|@--|");
}

#[test]
fn different_bodies() {
    differ("@|F||1|@--", "@|F||2|@--");
    differ("@|F||1|@--", "@|F||1||@--");
    differ("@|F||1|@--", "@|F||\n1|@--");
    differ("@|F||1|@|F||2|@--", "@|F||2|@|F||1|@--");
    differ("@|F||1|@|F||2|@--", "@|F||1|@--");
    differ("@|F|||@--", "@--");
    differ("@|F; filename=\"x\"||1|@--", "@|F||1|@--");
    differ("@|F; filename=\"x\"||1|@--", "@|F; filename=\"y\"||1|@--");
    differ("@|F|content-type: a/b||1|@--", "@|F|content-type: a/c||1|@--");
    differ("@|F|content-transfer-encoding: base64||1|@--", "@|F||1|@--");
    differ("@|F|x: 1|x: 2||1|@--", "@|F|x: 2|x: 1||1|@--");
}

#[test]
fn what_counts_by_its_bytes() {
    for body in [
        "",
        "@",
        "@|",
        "@|F||1",
        "@|F||1|@",
        "@|F||1|@-",
        "@|F||1|@--x",
        "@|F||1|@--|x",
        "@|F||1|@x|F||2|@--",
        "x|@|F||1|@--",
        "@|F|1|@--",
        "@||1|@--",
        "@|x: 1||1|@--",
        "@|content-disposition: attachment; name=\"a\"||1|@--",
        "@|F|folded: 1| 2||1|@--",
        "@|F|no colon||1|@--",
        "@|F|: 1||1|@--",
        "@|F|a b: 1||1|@--",
        "@|F|x: 1\n||1|@--",
        "@|F|@: 1||1|@--",
        "@|F||@--",
        "@\nF\n\n1\n@--",
    ] {
        assert_eq!(write("b", body), Err(ByBytes), "{body}");
    }
}

#[test]
fn hostile_bodies_are_read_in_no_time() {
    const LONG: usize = 1 << 20;
    let boundary = "b".repeat(70);
    let almost = format!("|--{}", &boundary[1..]);
    for body in [
        format!("@|F||{}", almost.repeat(LONG / almost.len())),
        format!("@|F||{}", "|".repeat(LONG / 2)),
        format!("@|F||{}", "\r".repeat(LONG)),
        format!("@|F|{}", "x: 1|".repeat(LONG / 6)),
        format!("{}@--", "@|F|||".repeat(LONG / 100)),
    ] {
        let started = Instant::now();
        let _ = write(&boundary, &body);
        let took = started.elapsed();
        // Linear takes well below a second, quadratic takes minutes.
        assert!(took < Duration::from_secs(20), "{took:?} for {body:.40}");
    }
}

proptest! {
    #[test]
    fn the_boundary_does_not_count(parts in prop::collection::vec("[a\r\n-]{0,8}", 0..4), other in "[c-z]{1,70}") {
        let body = |parts: &[String]| parts.iter().map(|part| format!("@|F||{part}|")).collect::<Vec<_>>().concat() + "@--|";
        prop_assert_eq!(write("b", &body(&parts)).unwrap(), write(&other, &body(&parts)).unwrap());
        let mut more = parts.clone();
        more.push(String::new());
        prop_assert_ne!(write("b", &body(&parts)), write("b", &body(&more)));
    }

    #[test]
    fn any_text_is_read_without_harm(body in r"([@|F:a -]|\|\||--){0,30}") {
        prop_assert_eq!(write("b", &body), write("b", &body));
    }

    #[test]
    fn any_bytes_are_read_without_harm(body: Vec<u8>) {
        let mut out = Vec::new();
        let _ = canonical(b"b", &body, &mut out);
    }
}

fn write(boundary: &str, body: &str) -> Result<Vec<u8>, ByBytes> {
    let body = body.replace('|', "\r\n").replace('F', FIELD).replace('@', &format!("--{boundary}"));
    let mut out = Vec::new();
    canonical(boundary.as_bytes(), body.as_bytes(), &mut out).map(|()| out)
}

fn same(a: &str, b: &str) {
    assert_eq!(write("b", a).expect(a), write("b", b).expect(b), "{a} and {b}");
}

fn differ(a: &str, b: &str) {
    assert_ne!(write("b", a).expect(a), write("b", b).expect(b), "{a} and {b}");
}
