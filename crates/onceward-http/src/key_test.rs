//! Keys as they come over the wire.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(line: &[u8], strict: Result<&str, BadKey>, lenient: Result<&str, BadKey>) {
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(line).unwrap());
    for (form, expect) in [(KeyForm::Strict, strict), (KeyForm::Lenient, lenient)] {
        let read = read(&headers, form).map(|key| key.expect("there is one"));
        assert_eq!(read.as_deref().map_err(|bad| *bad), expect, "{form:?} {}", line.escape_ascii());
    }
}

#[test]
fn keys_in_the_wild() {
    use BadKey::{Empty, Malformed, TooLong};
    let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    check(format!("\"{uuid}\"").as_bytes(), Ok(uuid), Ok(uuid));
    check(uuid.as_bytes(), Err(Malformed), Ok(uuid));
    check(b"\"with space\"", Ok("with space"), Ok("with space"));
    check(b"with space", Err(Malformed), Err(Malformed));
    check(br#""a\"b\\c""#, Ok(r#"a"b\c"#), Ok(r#"a"b\c"#));
    check(br#""a\x""#, Err(Malformed), Err(Malformed));
    check(b"\"unclosed", Err(Malformed), Err(Malformed));
    check(b"\"a\"b", Err(Malformed), Err(Malformed));
    check(b"\"a\", \"b\"", Err(Malformed), Err(Malformed));
    check(b"a, b", Err(Malformed), Err(Malformed));
    check(b"a,b", Err(Malformed), Err(Malformed));
    check(b"\"a\";v=1", Err(Malformed), Err(Malformed));
    check(b"a;v=1", Err(Malformed), Err(Malformed));
    check(b"\"\"", Err(Empty), Err(Empty));
    check(b"", Err(Malformed), Err(Empty));
    check(b"42", Err(Malformed), Ok("42"));
    check(b"4.2", Err(Malformed), Ok("4.2"));
    check(b"?1", Err(Malformed), Ok("?1"));
    check(b":YQ==:", Err(Malformed), Ok(":YQ==:"));
    check(b"token", Err(Malformed), Ok("token"));
    check("schl\u{fc}ssel".as_bytes(), Err(Malformed), Err(Malformed));
    check(b"\"tab\there\"", Err(Malformed), Err(Malformed));
    check(b"  \"padded\"  ", Ok("padded"), Ok("padded"));
    check(&[b'k'; 255], Err(Malformed), Ok(&"k".repeat(255)));
    check(&[b'k'; 256], Err(Malformed), Err(TooLong));
    check(format!("\"{}\"", "k".repeat(256)).as_bytes(), Err(TooLong), Err(TooLong));
}

#[test]
fn none_one_or_several() {
    let mut headers = HeaderMap::new();
    assert_eq!(read(&headers, KeyForm::Lenient), Ok(None));
    headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
    assert_eq!(read(&headers, KeyForm::Lenient), Ok(Some("a".into())));
    headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
    assert_eq!(read(&headers, KeyForm::Lenient), Err(BadKey::Several));
}

proptest! {
    /// Whatever comes, the result is a key within the bounds of an id, or a refusal.
    #[test]
    fn any_field_value(bytes in prop::collection::vec(0x20..=0xffu8, 0..300)) {
        prop_assume!(!bytes.contains(&0x7f));
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(&bytes).unwrap());
        for form in [KeyForm::Strict, KeyForm::Lenient] {
            if let Ok(Some(key)) = read(&headers, form) {
                onceward::Id::new("s", "o", &key).unwrap();
            }
        }
    }

    /// Quoted and raw are the same key, in the lenient form.
    #[test]
    fn quotes_do_not_matter(key in "[!#-+\\--:<-\\[\\]-~]{1,255}") {
        let value = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(text).unwrap());
            read(&headers, KeyForm::Lenient)
        };
        prop_assert_eq!(value(&key), Ok(Some(key.clone())));
        prop_assert_eq!(value(&format!("\"{key}\"")), Ok(Some(key)));
    }
}
