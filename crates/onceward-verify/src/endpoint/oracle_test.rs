use super::{Oracle, number};

#[test]
fn a_number_is_read_plainly_or_by_pointer() {
    assert_eq!(number(" 12\n", "", "").unwrap(), 12);
    assert_eq!(number(r#"{"a":{"count":7}}"#, "/a/count", "").unwrap(), 7);
    assert_eq!(number(r#"[{"n":"8"}]"#, "/0/n", "").unwrap(), 8);
    for (text, pointer) in [("", ""), (r#"{"count":7}"#, ""), ("7", "/count"), ("{}", "/count"), ("x", "/a")]
    {
        assert!(number(text, pointer, "").is_err(), "{text:?} at {pointer:?} was read");
    }
}

#[tokio::test]
async fn a_command_prints_it() {
    assert_eq!(Oracle::Command("echo $((40 + 2))".into()).count().await.unwrap(), Some(42));
    let failed = Oracle::Command("echo gone >&2; exit 3".into()).count().await.unwrap_err();
    assert!(failed.to_string().contains("gone"), "{failed}");
    assert_eq!(Oracle::Unseen.count().await.unwrap(), None);
}
