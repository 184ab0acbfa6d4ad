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

/// The table of answers in the published contract, and the problems that there are.
#[test]
fn the_published_contract_names_every_problem_with_its_status() {
    let contract = include_str!("../../../docs/protocol.md");
    let (_, answers) = contract.split_once("| situation | status |").unwrap();
    let (table, _) = answers.split_once("\n\n").unwrap();
    let mut named = std::collections::BTreeSet::new();
    for row in table.lines().filter(|row| row.contains(" | `")) {
        let [_, status, problem, retryable] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("not four cells: {row}")
        };
        check_row(row, status, problem, retryable, &mut named);
    }
    let known: std::collections::BTreeSet<_> = Problem::NAMES.into_iter().collect();
    assert_eq!(named, known);
}

fn check_row(
    row: &str,
    status: &str,
    problem: &str,
    retryable: &str,
    named: &mut std::collections::BTreeSet<&'static str>,
) {
    let name = problem.split('`').nth(1).expect(row);
    let example = Problem::examples().into_iter().find(|example| example.name() == name).expect(row);
    assert_eq!(example.status().as_str(), status, "{row}");
    // An outcome that is being reconciled has a row of its own.
    if !row.contains("being reconciled") {
        let response = example.clone().into_response(example.status());
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let retryable = retryable.trim_end_matches(" |") == "yes";
        assert_eq!(body["retryable"], retryable, "{row}");
    }
    named.insert(example.name());
}
