use super::{additions, differences};
use crate::endpoint::message::{Answer, Meaning};

fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Answer {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Answer { status, fields, body: body.to_owned().into(), meaning: Meaning::Usual }
}

#[test]
fn a_replay_is_the_same_answer() {
    let first =
        answer(201, &[("date", "now"), ("location", "/1"), ("etag", "a"), ("etag", "b")], r#"{"id":1}"#);
    let mut again = first.clone();
    again.fields[0].1 = "later".into();
    again.fields.push(("idempotent-replayed".into(), "true".into()));
    assert!(differences(&first, &again, &[]).is_empty());
    assert!(additions(&first, &again, &[]).is_empty());
}

#[test]
fn each_difference_is_named() {
    let first = answer(201, &[("location", "/1"), ("etag", "a"), ("etag", "b")], r#"{"id":1,"a":2}"#);
    let again = answer(200, &[("etag", "a"), ("x-cache", "hit")], r#"{"a":2,"id":1}"#);
    let found = differences(&first, &again, &[]).join("; ");
    for part in ["201 became 200", "`location` was lost", "`etag` changed", "same JSON in other bytes"] {
        assert!(found.contains(part), "{part:?} is not in {found:?}");
    }
    assert_eq!(additions(&first, &again, &[]), ["x-cache"]);
    let volatile = ["Location".to_owned(), "ETag".to_owned()];
    assert_eq!(differences(&first, &again, &volatile).len(), 2);
}
