//! Tests of deciding which migrations are missing.

use super::*;

#[test]
fn what_is_there_is_ours_or_is_left_alone() {
    let foreign = Err(ErrorKind::Foreign);
    for (receipts, schema, expected) in [
        (false, SchemaTable::Absent, Ok(0)),
        (false, SchemaTable::Applied(0), Ok(0)),
        (true, SchemaTable::Applied(1), Ok(1)),
        (true, SchemaTable::Applied(2), Ok(2)),
        (true, SchemaTable::Absent, foreign),
        (true, SchemaTable::Applied(0), foreign),
        (false, SchemaTable::Applied(1), foreign),
        (true, SchemaTable::Applied(3), foreign),
        (true, SchemaTable::Foreign, foreign),
        (false, SchemaTable::Foreign, foreign),
        (true, SchemaTable::Unreleased, foreign),
        (false, SchemaTable::Unreleased, foreign),
    ] {
        let found = applied(FoundTables { receipts, schema }, 2).map_err(|error| error.kind());
        assert_eq!(found, expected, "receipts {receipts}, schema {schema:?}");
    }
}

#[test]
fn tables_from_before_the_first_release_are_refused_with_advice() {
    let refused =
        applied(FoundTables { receipts: true, schema: SchemaTable::Unreleased }, 2).unwrap_err().to_string();
    assert!(refused.contains("drop `onceward_receipts` and `onceward_schema`"), "{refused}");
    assert!(refused.contains("another database"), "{refused}");
}
