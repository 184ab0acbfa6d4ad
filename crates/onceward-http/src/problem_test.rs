//! Tests of the problem responses.

use super::*;

#[test]
fn every_problem_is_listed_once_under_its_name() {
    let examples = Problem::examples();
    assert_eq!(examples.each_ref().map(Problem::name), Problem::NAMES);
    assert_eq!(examples.each_ref().map(Problem::index).to_vec(), (0..examples.len()).collect::<Vec<_>>());
}

#[test]
fn a_problem_says_the_same_in_its_fields_and_its_body() {
    for problem in Problem::examples() {
        let (name, status) = (problem.name(), problem.status());
        let response = problem.into_response(status);
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], format!("urn:onceward:problem:{name}"));
        assert_eq!((response.status(), &body["status"]), (status, &status.as_u16().into()));
        let waits = response.headers().contains_key(RETRY_AFTER);
        assert!(!waits || body["retryable"] == true, "{name}: a problem with Retry-After must be retryable");
    }
}
