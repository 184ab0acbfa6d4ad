use super::*;

fn read(pointer: &str, body: &str) -> Result<Option<String>, String> {
    let pointer = Pointer::parse(pointer).unwrap();
    KeyFrom::read_body(&pointer, &KeyShape::default(), body.as_bytes()).map_err(|problem| match problem {
        Problem::KeyMalformed(why) => why,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_source_is_written_as_it_is_read() {
    for text in ["header:paypal-request-id", "body:/id", "body:/data/0/a~1b"] {
        assert_eq!(text.parse::<KeyFrom>().unwrap().to_string(), text);
    }
    assert_eq!(KeyFrom::default().to_string(), "header:idempotency-key");
    for text in ["", "id", "body", "body:", "body:id", "header:", "header:a b", "query:id", "body:/a~2"] {
        assert!(text.parse::<KeyFrom>().is_err(), "{text}");
    }
}

#[test]
fn a_key_in_a_body_is_a_string_or_an_integer() {
    for (pointer, body, key) in [
        ("/id", r#"{"id":"evt_1"}"#, Some("evt_1")),
        ("/id", r#"{"id":"evt\u005f1"}"#, Some("evt_1")),
        ("/id", r#"{"id":42}"#, Some("42")),
        ("/id", r#"{"id":-7}"#, Some("-7")),
        ("/id", r#"{"id":-0}"#, Some("0")),
        // Beyond what a float or 64 bits hold.
        ("/id", r#"{"id":9007199254740993}"#, Some("9007199254740993")),
        ("/id", r#"{"id":123456789012345678901234567890}"#, Some("123456789012345678901234567890")),
        ("/data/1/id", r#"{"data":[{"id":1},{"id":2},{"id":3}]}"#, Some("2")),
        ("/0", r#"["a"]"#, Some("a")),
        // The name that a step has after it was unescaped.
        ("/a~1b", r#"{"a/b":"x"}"#, Some("x")),
        // Repeated, but not on the way.
        ("/id", r#"{"x":1,"x":2,"id":"a"}"#, Some("a")),
        ("/id", "{}", None),
        ("/id", "[1]", None),
        ("/id", "5", None),
        ("/id", "null", None),
        ("/id/x", r#"{"id":"a"}"#, None),
        ("/id/x", r#"{"id":1.5}"#, None),
        ("/3", "[1,2]", None),
        ("/01", "[1,2]", None),
        ("/-", "[1,2]", None),
    ] {
        assert_eq!(read(pointer, body).unwrap().as_deref(), key, "{pointer} in {body}");
    }
}

#[test]
fn any_other_value_is_refused() {
    for (body, why) in [
        (r#"{"id":null}"#, "must be a string or an integer"),
        (r#"{"id":true}"#, "must be a string or an integer"),
        (r#"{"id":1.0}"#, "must be a string or an integer"),
        (r#"{"id":1e3}"#, "must be a string or an integer"),
        (r#"{"id":{}}"#, "must be a string or an integer"),
        (r#"{"id":["a"]}"#, "must be a string or an integer"),
        (r#"{"id":""}"#, "which is empty"),
        (r#"{"id":1,"id":2}"#, "more than once"),
        (r#"{"id":"a"} x"#, "cannot be read"),
        (r#"{"id":"a""#, "cannot be read"),
        (r#"{"id":01}"#, "cannot be read"),
        (r#"{"id":"\ud800"}"#, "must be a string or an integer"),
        ("", "cannot be read"),
        ("id=1", "cannot be read"),
    ] {
        let error = read("/id", body).expect_err(body);
        assert!(error.contains(why) && error.contains("`/id`"), "{body}: {error}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(read("/0", &format!("[1,{deep}]")), Ok(Some("1".into())), "what is not on the way is skipped");
    assert!(read("/0", &deep).is_err(), "neither string nor integer");
}

#[test]
fn a_long_value_or_one_that_is_not_ascii_is_hashed() {
    let key = |value: &str| read("/id", &serde_json::json!({ "id": value }).to_string()).unwrap().unwrap();
    let longest = "x".repeat(KEY_BYTES_MAX);
    assert_eq!(key(&longest), longest);
    let hashed = [
        longest.clone() + "x",
        "x".repeat(100_000),
        "Zürich".into(),
        "Zurich\n".into(),
        // No text can be the hash of another one.
        key("Zürich"),
    ];
    let mut keys: Vec<_> = hashed.iter().map(|value| key(value)).collect();
    for text in &keys {
        assert!(text.len() == 65 && text.starts_with('~'), "{text}");
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), hashed.len());
}

#[test]
fn a_route_may_want_a_length_and_a_pattern() {
    let shape = KeyShape::default().with_length_min(4).unwrap().with_pattern("evt_[0-9]+").unwrap();
    let pointer = Pointer::parse("/id").unwrap();
    let read = |body: &str| KeyFrom::read_body(&pointer, &shape, body.as_bytes());
    assert_eq!(read(r#"{"id":"evt_1"}"#), Ok(Some("evt_1".into())));
    for (body, why) in
        [(r#"{"id":"e_1"}"#, "shorter than 4"), (r#"{"id":"event_1"}"#, "does not have the form")]
    {
        let Err(Problem::KeyMalformed(error)) = read(body) else { panic!("{body}") };
        assert!(error.contains(why) && error.contains("member `/id` of the body"), "{error}");
    }
}
