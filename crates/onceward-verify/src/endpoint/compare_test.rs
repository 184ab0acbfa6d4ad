use super::{Differences, additions, differences};
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
    assert!(differences(&first, &again, &[]).is_none());
    assert!(additions(&first, &again, &[]).is_empty());
}

#[test]
fn each_difference_is_named() {
    let first = answer(201, &[("location", "/1"), ("etag", "a"), ("etag", "b")], r#"{"id":1,"a":2}"#);
    let again = answer(200, &[("etag", "a"), ("x-cache", "hit")], r#"{"a":2,"id":1}"#);
    let Differences { text: found, cause, is_another } = differences(&first, &again, &[]).unwrap();
    assert!(!is_another && !cause.contains("/1"), "{cause}");
    for part in ["201 became 200", "`location` was lost", "`etag` changed", "same JSON in other bytes"] {
        assert!(found.contains(part), "{part:?} is not in {found:?}");
    }
    assert_eq!(additions(&first, &again, &[]), ["x-cache"]);
    let volatile = ["Location".to_owned(), "ETag".to_owned()];
    assert_eq!(differences(&first, &again, &volatile).unwrap().text.matches("; ").count(), 1);
}

/// Of two successes that came together either may be the replay: it is one cause.
#[test]
fn the_cause_of_another_status_has_no_direction() {
    let cause = |one: u16, other: u16| {
        let [one, other] = [one, other].map(|status| answer(status, &[], "x"));
        differences(&one, &other, &[]).unwrap().cause
    };
    assert_eq!(cause(201, 200), cause(200, 201));
    assert_ne!(cause(201, 409), cause(201, 200));
    assert_eq!(cause(201, 409), "status 409");
}
