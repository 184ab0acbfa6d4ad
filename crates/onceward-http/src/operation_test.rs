//! Tests of the names of operations.

use http::Method;
use onceward::Id;

use super::Operation;

#[test]
fn a_path_is_written_as_it_came_and_a_name_instead_of_it() {
    assert_eq!(Operation::Path.of(&Method::POST, "/orders/7"), "POST /orders/7");
    assert_eq!(Operation::named("orders").unwrap().of(&Method::PATCH, "/orders/7"), "PATCH orders");
}

#[test]
fn unusual_or_long_names_are_hashed_into_distinct_operations() {
    let methods = ["POST", "A#B", "A#C", &"M".repeat(40), &"M".repeat(4_000)];
    let paths = ["/", "/a#b", "/a%23b", "/ü", "*", &"/x".repeat(200), &"/x".repeat(201)];
    let mut seen = std::collections::HashSet::new();
    for method in methods {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for path in paths {
            let operation = Operation::Path.of(&method, path);
            Id::new("scope", &operation, "key").unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            assert!(seen.insert(operation), "{method} {path}");
        }
    }
}

#[test]
fn a_name_that_cannot_be_part_of_an_id_is_refused() {
    for bad in ["", "a#b", "ü", "a\nb", &"x".repeat(257)] {
        assert!(Operation::named(bad).is_err(), "{bad:?}");
    }
    let longest = Operation::named(&"x".repeat(256)).unwrap();
    Id::new("scope", &longest.of(&Method::OPTIONS, "/"), "key").unwrap().step("email").unwrap();
}
