//! Tests of the query plans of scans.

use super::*;

/// The query plan of a statement, as SQLite describes it.
fn plan(statement: &str) -> Vec<String> {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(include_str!("0001.sql")).unwrap();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let parameters = vec![rusqlite::types::Value::Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

#[test]
fn no_scan_walks_over_what_it_is_not_about() {
    for (statement, by) in [
        (IN_STATE, "INDEX onceward_receipts_due (state=? AND (due,scope,key,operation)>(?,?,?,?) AND due<?)"),
        (NEVER_DUE, "INDEX onceward_receipts_due (state=? AND due=? AND (scope,key,operation)>(?,?,?))"),
        (OF_SCOPE, "PRIMARY KEY (scope=? AND (key,operation)>(?,?))"),
        (OF_KEY, "PRIMARY KEY (scope=? AND key=? AND operation>? AND operation<?)"),
        (ALL, "PRIMARY KEY ((scope,key,operation)>(?,?,?))"),
    ] {
        let plan = plan(statement);
        assert_eq!(plan.len(), 1, "it is not sorted by itself: {plan:?}");
        assert!(plan[0].starts_with("SEARCH onceward_receipts") && plan[0].contains(by), "{plan:?}");
    }
}

/// Row by row, and not as a whole: what is due may be more than a page.
#[test]
fn what_is_due_is_merged() {
    let plan = plan(DUE);
    let merges = plan.iter().filter(|step| step.contains("MERGE (UNION ALL)")).count();
    let searches = plan.iter().filter(|step| step.contains("INDEX onceward_receipts_due (state")).count();
    assert_eq!((merges, searches), (12, 13), "{plan:?}");
    // Only the lookups between two states, which find nothing, have something to sort.
    let sorts = plan.iter().filter(|step| step.contains("TEMP B-TREE")).count();
    assert_eq!(sorts, 7, "{plan:?}");
}
