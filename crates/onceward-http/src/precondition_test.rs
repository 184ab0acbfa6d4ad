//! Every combination of preconditions against every kind of current version, next to an independent reading of RFC
//! 9110, section 13.2.2; and what can be wrong with the fields.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use http::header::{ETAG, LAST_MODIFIED};

use crate::precondition::{EntityTag, Evaluation, Preconditions, RowCondition, TagCondition, Validators};

const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;
const EARLY: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const LATE: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

fn then() -> SystemTime {
    EPOCH + Duration::from_millis(784_111_777_400)
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    fields.iter().map(field).collect()
}

/// What a field says of a version: that it is as wanted, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    True,
    False,
}

/// One value of a field, and whether its condition holds for a version with the strong tag "a", one with the weak tag
/// "a", one without a tag, and for none at all.
type Row = (Option<&'static str>, [Says; 4]);

use Says::{False as F, True as T};

const IF_MATCH: [Row; 6] = [
    (None, [T, T, T, T]),
    (Some("*"), [T, T, T, F]),
    (Some("\"a\""), [T, F, F, F]),
    (Some("W/\"a\""), [F, F, F, F]),
    (Some("\"b\", \"a\""), [T, F, F, F]),
    (Some("\"b\""), [F, F, F, F]),
];
const IF_NONE_MATCH: [Row; 6] = [
    (None, [T, T, T, T]),
    (Some("*"), [F, F, F, T]),
    (Some("\"a\""), [F, F, T, T]),
    (Some("W/\"a\""), [F, F, T, T]),
    (Some("\"b\", W/\"a\""), [F, F, T, T]),
    (Some("\"b\""), [T, T, T, T]),
];
/// The date of the version is `THEN`. A field that cannot be read counts as absent.
const UNMODIFIED_SINCE: [(Option<&str>, Says); 5] =
    [(None, T), (Some(EARLY), F), (Some(THEN), T), (Some(LATE), T), (Some("yesterday"), T)];
const MODIFIED_SINCE: [(Option<&str>, Says); 5] =
    [(None, T), (Some(EARLY), T), (Some(THEN), F), (Some(LATE), F), (Some("yesterday"), T)];

#[test]
fn every_combination_is_evaluated_in_the_order_of_the_rfc() {
    let a = EntityTag::strong("a").unwrap();
    let weak_a = EntityTag::weak("a").unwrap();
    let versions = [
        Validators::existing().with_tag(a),
        Validators::existing().with_tag(weak_a),
        Validators::existing(),
        Validators::absent(),
    ];
    let mut cases = 0;
    for (version, validators) in versions.into_iter().enumerate() {
        for dated in [true, false] {
            let current = if dated && validators.exists {
                validators.clone().with_last_modified(then())
            } else {
                validators.clone()
            };
            for (im, im_says) in IF_MATCH {
                for (inm, inm_says) in IF_NONE_MATCH {
                    for (ius, ius_says) in UNMODIFIED_SINCE {
                        for (ims, ims_says) in MODIFIED_SINCE {
                            for method in
                                [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE]
                            {
                                let reads = method == Method::GET || method == Method::HEAD;
                                let has_date = current.last_modified.is_some();
                                // The steps of section 13.2.2, one by one.
                                let expected = 'steps: {
                                    if im.is_some() && im_says[version] == F {
                                        break 'steps Evaluation::Failed;
                                    }
                                    if im.is_none() && ius.is_some() && has_date && ius_says == F {
                                        break 'steps Evaluation::Failed;
                                    }
                                    if inm.is_some() && inm_says[version] == F {
                                        break 'steps if reads {
                                            Evaluation::NotModified
                                        } else {
                                            Evaluation::Failed
                                        };
                                    }
                                    if reads && inm.is_none() && ims.is_some() && has_date && ims_says == F {
                                        break 'steps Evaluation::NotModified;
                                    }
                                    Evaluation::Proceed
                                };
                                let fields: Vec<(&str, &str)> = [
                                    ("if-match", im),
                                    ("if-none-match", inm),
                                    ("if-unmodified-since", ius),
                                    ("if-modified-since", ims),
                                ]
                                .into_iter()
                                .filter_map(|(name, value)| Some((name, value?)))
                                .collect();
                                let read = Preconditions::from_headers(&headers(&fields)).unwrap();
                                let found = read.evaluate(&method, &current);
                                assert_eq!(found, expected, "{method} {fields:?} on {current:?}");
                                cases += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(cases, 4 * 2 * 6 * 6 * 5 * 5 * 5);
}

#[test]
fn dates_are_read_in_the_three_forms_of_http() {
    for form in [THEN, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        let read = Preconditions::from_headers(&headers(&[("if-unmodified-since", form)])).unwrap();
        assert_eq!(read.if_unmodified_since, Some(EPOCH + Duration::from_secs(784_111_777)), "{form}");
    }
    let twice = [("if-modified-since", THEN), ("if-modified-since", LATE)];
    assert_eq!(Preconditions::from_headers(&headers(&twice)).unwrap().if_modified_since, None);
}

#[test]
fn tags_are_lists_over_any_number_of_lines() {
    let fields = [("if-match", ",\t\"a\" ,, W/\"b\","), ("if-match", "\"c,d\"")];
    let read = Preconditions::from_headers(&headers(&fields)).unwrap();
    let Some(condition @ TagCondition::Tags(tags)) = &read.if_match else { panic!("{read:?}") };
    let texts: Vec<String> = tags.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["\"a\"", "W/\"b\"", "\"c,d\""]);
    assert_eq!(condition.strong_tags(), Some(vec!["a", "c,d"]));
    assert!(read.protects_update());
    assert!(
        !Preconditions::from_headers(&headers(&[("if-modified-since", THEN)])).unwrap().protects_update()
    );
}

#[test]
fn a_field_that_cannot_be_read_is_an_error_that_names_it() {
    let many = vec!["\"x\""; 257].join(",");
    let long = format!("\"{}\"", "x".repeat(1025));
    for (value, why) in [
        ("a", "without quotes"),
        ("\"a", "closing quote"),
        ("w/\"a\"", "without quotes"),
        ("\"a\" \"b\"", "without a comma"),
        ("\"a b\"", "a space"),
        ("\"a\", *", "without quotes"),
        ("", "names no entity tag"),
        (" , ", "names no entity tag"),
        (many.as_str(), "more than 256"),
        (long.as_str(), "1025 bytes"),
    ] {
        for name in ["if-match", "if-none-match"] {
            let error = Preconditions::from_headers(&headers(&[(name, value)])).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(why), "{value}: {error}");
        }
    }
    let stars = [("if-match", "*"), ("if-match", "\"a\"")];
    let error = Preconditions::from_headers(&headers(&stars)).unwrap_err().to_string();
    assert!(error.contains("* together with other values"), "{error}");
    assert!(EntityTag::strong("a\"b").is_err() && EntityTag::strong("a\u{7f}").is_err());
    assert_eq!("W/\"a\"".parse(), EntityTag::weak("a"));
    assert!("\"a\" ".parse::<EntityTag>().is_err());
}

#[test]
fn an_answer_without_carrying_out_names_the_current_version() {
    let long_ago = EPOCH + Duration::from_secs(784_111_777);
    let current =
        Validators::existing().with_tag(EntityTag::strong("7").unwrap()).with_last_modified(long_ago);
    let of = |name: HeaderName, value: &'static str| {
        Preconditions::from_headers(&HeaderMap::from_iter([(name, HeaderValue::from_static(value))])).unwrap()
    };
    let read = of(http::header::IF_NONE_MATCH, "W/\"7\"").answer(&Method::GET, &current).unwrap();
    assert_eq!((read.status().as_u16(), read.body().len()), (304, 0));
    assert_eq!(read.headers()[ETAG], "\"7\"");
    assert_eq!(read.headers()[LAST_MODIFIED], "Sun, 06 Nov 1994 08:49:37 GMT");
    let late = Validators::existing()
        .with_tag(EntityTag::strong("7").unwrap())
        .with_last_modified(EPOCH + Duration::from_secs(1 << 40));
    let read = of(http::header::IF_NONE_MATCH, "*").answer(&Method::HEAD, &late).unwrap();
    assert_eq!(read.headers().get(LAST_MODIFIED), None, "a date after the year 9999 cannot be written");
    let update = of(http::header::IF_MATCH, "\"6\"").answer(&Method::PUT, &current).unwrap();
    assert_eq!(update.status().as_u16(), 412);
    assert!(String::from_utf8_lossy(update.body()).contains("\\\"7\\\""));
    assert!(of(http::header::IF_MATCH, "\"7\"").answer(&Method::PUT, &current).is_none());
}

/// Of two conditions, the one that failed: a client that expected the version that is there has seen no conflict.
#[test]
fn a_refusal_names_what_the_client_expected_only_where_if_match_failed() {
    let current = Validators::existing().with_tag(EntityTag::strong("7").unwrap());
    for (fields, expected) in [
        (&[("if-match", "\"6\"")][..], Some("[\"\\\"6\\\"\"]")),
        (&[("if-match", "\"6\""), ("if-none-match", "\"7\"")], Some("[\"\\\"6\\\"\"]")),
        (&[("if-match", "\"7\""), ("if-none-match", "\"7\"")], None),
        (&[("if-match", "*"), ("if-none-match", "\"7\"")], None),
        (&[("if-none-match", "\"7\"")], None),
        (&[("if-none-match", "*")], None),
    ] {
        let preconditions = Preconditions::from_headers(&headers(fields)).unwrap();
        let answer = preconditions.answer(&Method::PUT, &current).unwrap();
        let problem: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!((answer.status().as_u16(), &problem["current"]), (412, &"\"7\"".into()), "{fields:?}");
        let named = problem.get("expected").map(ToString::to_string);
        assert_eq!(named.as_deref(), expected, "{fields:?}");
        let changed = problem["detail"].as_str().unwrap().contains("was changed meanwhile");
        assert_eq!(changed, expected.is_some(), "{problem}");
    }
}

#[test]
fn a_condition_on_a_row_is_what_one_statement_can_compare() {
    let of = |fields: &[(HeaderName, &'static str)]| {
        let headers = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        Preconditions::from_headers(&headers.collect()).unwrap()
    };
    let tags = of(&[(http::header::IF_MATCH, "\"1\", W/\"2\", \"3\"")]);
    assert_eq!(tags.row_condition(), RowCondition::Match(vec!["1", "3"]));
    let weak = of(&[(http::header::IF_MATCH, "W/\"2\"")]);
    assert_eq!(weak.row_condition(), RowCondition::Match(vec![]), "a weak tag never matches");
    assert_eq!(of(&[(http::header::IF_MATCH, "*")]).row_condition(), RowCondition::Exists);
    assert_eq!(of(&[(http::header::IF_NONE_MATCH, "*")]).row_condition(), RowCondition::Absent);
    assert_eq!(of(&[]).row_condition(), RowCondition::Unconditional);
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let read = of(&[(http::header::IF_MODIFIED_SINCE, date)]);
    assert_eq!(read.row_condition(), RowCondition::Unconditional, "it is for reads");
    let both = of(&[(http::header::IF_MATCH, "\"1\""), (http::header::IF_UNMODIFIED_SINCE, date)]);
    assert_eq!(both.row_condition(), RowCondition::Match(vec!["1"]), "the date does not count");
    for not_comparable in [
        &[(http::header::IF_NONE_MATCH, "\"1\"")][..],
        &[(http::header::IF_UNMODIFIED_SINCE, date)],
        &[(http::header::IF_NONE_MATCH, "*"), (http::header::IF_UNMODIFIED_SINCE, date)],
        &[(http::header::IF_MATCH, "\"1\""), (http::header::IF_NONE_MATCH, "*")],
    ] {
        assert_eq!(of(not_comparable).row_condition(), RowCondition::NotComparable);
    }
}

/// RFC 9110 allows every byte from 0x80 on in a tag, also those that are no UTF-8.
#[test]
fn a_tag_may_have_bytes_that_are_no_text() {
    let read = |value: &[u8]| {
        let headers = [(http::header::IF_MATCH, HeaderValue::from_bytes(value).unwrap())];
        Preconditions::from_headers(&headers.into_iter().collect())
    };
    let preconditions = read(b"\"caf\xe9\", \"\xff\xfe\"").unwrap();
    let current = Validators::existing().with_tag(EntityTag::strong("7").unwrap());
    assert_eq!(preconditions.evaluate(&Method::PUT, &current), Evaluation::Failed);
    assert!(preconditions.protects_update());
    let text = read("\"caf\u{e9}\"".as_bytes()).unwrap();
    let current = Validators::existing().with_tag(EntityTag::strong("caf\u{e9}").unwrap());
    assert_eq!(text.evaluate(&Method::PUT, &current), Evaluation::Proceed);
    assert!(read(b"\"\xff").is_err(), "it is still malformed without its closing quote");
    // A tab is a control character that a field value may have, and a tag may not.
    for malformed in [&b"\"a\tb\""[..], b"\"a b\"", b"\"a\", \"b\tc\""] {
        assert!(read(malformed).is_err(), "{malformed:?}");
    }
}
