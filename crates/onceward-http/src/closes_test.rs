use http::{HeaderMap, HeaderValue};
use onceward::Id;

use super::*;

fn headers(lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(ONCEWARD_CLOSES, HeaderValue::from_str(line).unwrap());
    }
    headers
}

fn ids(scope: &str, caller: Caller) -> Ids {
    Ids::new(Id::new(scope, "POST /refunds", "undo").unwrap(), caller)
}

fn closing_route() -> Route {
    Route::builder().with_closes(["POST /charges"]).build().unwrap()
}

#[test]
fn a_key_and_its_operation_are_read() {
    let good = headers(&[r#""a\"b"; operation="POST /charges""#]);
    let mut undo = ids("someone", Caller::Named);
    undo.also(1, (Id::new("someone-by-another-secret", "POST /refunds", "undo").unwrap(), Caller::Named));
    let closing = read(&closing_route(), &good, &undo).unwrap().unwrap();
    let named = |scope| Id::new(scope, "POST /charges", "a\"b").unwrap();
    assert_eq!(
        closing.ids,
        [named("someone"), named("someone-by-another-secret")],
        "under all ids, in their order"
    );
    assert!(read(&Route::default(), &good, &undo).unwrap().is_none(), "not on a route that closes nothing");
    assert!(read(&closing_route(), &HeaderMap::new(), &undo).unwrap().is_none());
}

/// What participants read that close it themselves.
#[test]
fn the_field_is_read_by_itself() {
    let good = headers(&[r#""a\"b"; operation="POST /charges""#]);
    let closes = ClosesField::read(&good).unwrap().unwrap();
    assert_eq!((closes.key.as_str(), closes.operation.as_str()), ("a\"b", "POST /charges"));
    assert_eq!(ClosesField::read(&HeaderMap::new()).unwrap(), None);
    for bad in [&["k"][..], &["\"k\""], &["\"k\"; operation=\"a\"", "\"l\"; operation=\"a\""]] {
        assert_eq!(ClosesField::read(&headers(bad)).unwrap_err().name(), "key-malformed", "{bad:?}");
    }
}

#[test]
fn whatever_else_is_refused() {
    let undo = ids("someone", Caller::Named);
    for bad in [
        &["k"][..],
        &["\"k\""],
        &["\"k\"; operation=POST"],
        &["\"k\"; operation=\"POST /charges\"; more=1"],
        &["\"\"; operation=\"POST /charges\""],
        &["\"k\"; operation=\"\""],
        &["1; operation=\"POST /charges\""],
        &["\"k\"; operation=\"POST /charges\", \"l\"; operation=\"POST /charges\""],
        &["\"k\"; operation=\"DELETE /charges\""],
        &["\"k\"; operation=\"POST /charges\"", "\"l\"; operation=\"POST /charges\""],
    ] {
        let refused = read(&closing_route(), &headers(bad), &undo).unwrap_err();
        assert_eq!(refused.name(), "key-malformed", "{bad:?}");
    }
    let own = Route::builder().with_closes(["POST /refunds"]).build().unwrap();
    let itself = headers(&["\"undo\"; operation=\"POST /refunds\""]);
    assert_eq!(read(&own, &itself, &undo).unwrap_err().name(), "key-malformed");
}

#[test]
fn nobody_closes_in_a_scope_that_others_have_too() {
    let good = headers(&["\"k\"; operation=\"POST /charges\""]);
    for undo in
        [ids("anonymous", Caller::Anonymous), ids("shared", Caller::Named), ids("a-host", Caller::Anonymous)]
    {
        assert_eq!(read(&closing_route(), &good, &undo).unwrap_err().name(), "scope-missing", "{undo:?}");
    }
    let shared = Route::builder().with_scope(crate::ScopeFrom::Shared).with_closes(["POST /charges"]).build();
    assert!(shared.unwrap_err().to_string().contains("share one scope"));
    for bad in ["", "a#b", "ü"] {
        assert!(Route::builder().with_closes([bad]).build().is_err(), "{bad:?}");
    }
}
