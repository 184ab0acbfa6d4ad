use super::*;

fn check(receipts: bool, schema: Option<u32>, known: u32) -> Result<u32, ErrorKind> {
    applied(Present { receipts, schema }, known).map_err(|error| error.kind())
}

#[test]
fn what_is_there_is_ours_or_is_left_alone() {
    let foreign = Err(ErrorKind::Foreign);
    for (receipts, schema, expected) in [
        (false, None, Ok(0)),
        (false, Some(0), Ok(0)),
        (true, Some(1), Ok(1)),
        (true, Some(2), Ok(2)),
        (true, None, foreign),
        (true, Some(0), foreign),
        (false, Some(1), foreign),
        (true, Some(3), foreign),
    ] {
        assert_eq!(check(receipts, schema, 2), expected, "receipts {receipts}, schema {schema:?}");
    }
}
