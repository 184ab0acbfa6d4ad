//! Keys as they come over the wire.

use proptest::prelude::*;

use super::*;

fn read(headers: &HeaderMap, form: KeyForm) -> Result<Option<String>, BadKey> {
    KeyShape::default().with_form(form).read(headers).map(|key| key.map(Cow::into_owned))
}

fn field(text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(text).unwrap());
    headers
}

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

#[test]
fn raw_keys_are_taken_as_they_stand() {
    for (text, expect) in [
        ("8e03", Ok("8e03")),
        ("\"8e03\"", Ok("\"8e03\"")),
        ("order 7, second try", Ok("order 7, second try")),
        ("\"open", Ok("\"open")),
        ("  padded ", Ok("padded")),
        ("", Err(BadKey::Empty)),
        ("tab\there", Err(BadKey::Malformed)),
    ] {
        let expect = expect.map(|key: &str| Some(key.to_owned()));
        assert_eq!(read(&field(text), KeyForm::Raw), expect, "{text:?}");
    }
}

#[test]
fn a_route_can_want_longer_keys_of_some_form() {
    let shape = KeyShape::default().with_length_min(4).unwrap();
    assert_eq!(shape.read(&field("abc")), Err(BadKey::TooShort(4)));
    assert_eq!(shape.read(&field("\"abcd\"")), Ok(Some("abcd".into())));
    assert_eq!(shape.read(&field("\"\"")), Err(BadKey::Empty));
    assert!(
        KeyShape::default().with_length_min(0).is_err() && KeyShape::default().with_length_min(256).is_err()
    );

    let shape = KeyShape::default().with_pattern("[0-9a-f]{4}|any").unwrap();
    for (key, good) in
        [("12af", true), ("any", true), ("12afx", false), ("x12af", false), ("anything", false)]
    {
        assert_eq!(shape.read(&field(key)).is_ok(), good, "{key}");
    }
    assert_eq!(shape.pattern(), Some("[0-9a-f]{4}|any"));
    for bad in ["(", "a)|(b", "["] {
        assert!(KeyShape::default().with_pattern(bad).is_err(), "{bad}");
    }
}

proptest! {
    /// Whatever comes, the result is a key within the bounds of an id, or a refusal.
    #[test]
    fn any_field_value(bytes in prop::collection::vec(0x20..=0xffu8, 0..300)) {
        prop_assume!(!bytes.contains(&0x7f));
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(&bytes).unwrap());
        for form in [KeyForm::Strict, KeyForm::Lenient, KeyForm::Raw] {
            if let Ok(Some(key)) = read(&headers, form) {
                onceward::Id::new("s", "o", &key).unwrap();
            }
        }
    }

    /// Quoted and raw are the same key, in the lenient form.
    #[test]
    fn quotes_do_not_matter(key in "[!#-+\\--:<-\\[\\]-~]{1,255}") {
        prop_assert_eq!(read(&field(&key), KeyForm::Lenient), Ok(Some(key.clone())));
        prop_assert_eq!(read(&field(&format!("\"{key}\"")), KeyForm::Lenient), Ok(Some(key)));
    }

    /// What the parser of Structured Fields makes of a field is what we make of it.
    #[test]
    fn strict_keys_are_structured_field_strings(text in "[ \"\\\\a-c;=,1]{0,12}|\"[ -~]{0,20}\"") {
        let expect = match sfv::Parser::new(&text).parse::<sfv::Item>() {
            Ok(sfv::Item { bare_item: sfv::BareItem::String(key), params }) if params.is_empty() => {
                Some(key.as_str().to_owned())
            }
            _ => None,
        };
        let read = read(&field(&text), KeyForm::Strict);
        match expect.as_deref() {
            Some("") => prop_assert_eq!(read, Err(BadKey::Empty)),
            Some(key) => prop_assert_eq!(read, Ok(Some(key.to_owned()))),
            None => prop_assert_eq!(read, Err(BadKey::Malformed)),
        }
    }
}
