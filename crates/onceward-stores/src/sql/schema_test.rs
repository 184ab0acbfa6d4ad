use super::*;

#[test]
fn what_is_there_is_ours_or_is_left_alone() {
    let foreign = Err(ErrorKind::Foreign);
    for (receipts, schema, expected) in [
        (false, Schema::Absent, Ok(0)),
        (false, Schema::Applied(0), Ok(0)),
        (true, Schema::Applied(1), Ok(1)),
        (true, Schema::Applied(2), Ok(2)),
        (true, Schema::Absent, foreign),
        (true, Schema::Applied(0), foreign),
        (false, Schema::Applied(1), foreign),
        (true, Schema::Applied(3), foreign),
        (true, Schema::Foreign, foreign),
        (false, Schema::Foreign, foreign),
        (true, Schema::Unreleased, foreign),
        (false, Schema::Unreleased, foreign),
    ] {
        let found = applied(Present { receipts, schema }, 2).map_err(|error| error.kind());
        assert_eq!(found, expected, "receipts {receipts}, schema {schema:?}");
    }
}

#[test]
fn who_has_tables_of_before_the_first_release_is_told_what_to_do() {
    let refused = applied(Present { receipts: true, schema: Schema::Unreleased }, 2).unwrap_err().to_string();
    assert!(refused.contains("drop `onceward_receipts` and `onceward_schema`"), "{refused}");
    assert!(refused.contains("another database"), "{refused}");
}
