use serde_json::{Value, json};

use super::{Check, ErrorKind, Setup, altered, reordered};

#[test]
fn another_body_is_made_from_the_first() {
    for (body, other) in [
        (json!({"amount": 12, "to": "x"}), json!({"amount": 13, "to": "x"})),
        (json!({"to": "x", "of": {"n": 1}}), json!({"to": "x", "of": {"n": 2}})),
        (json!({"to": "x"}), json!({"to": "xx"})),
        (json!({"yes": true}), json!({"yes": true, "verify": 1})),
        (json!({}), json!({"verify": 1})),
    ] {
        let made: Value = serde_json::from_str(&altered(&body).unwrap()).unwrap();
        assert_ne!(made, body);
        if body.get("of").is_none() {
            assert_eq!(made, other);
        }
    }
    assert_eq!(altered(&json!(null)), None);
}

#[test]
fn reordered_is_the_same_value_in_other_bytes() {
    let body = r#"{"amount":12,"to":{"name":"x","tags":[1,"a"]}}"#;
    let value: Value = serde_json::from_str(body).unwrap();
    let other = reordered(&value, body).unwrap();
    assert_ne!(other, body);
    assert_eq!(serde_json::from_str::<Value>(&other).unwrap(), value);
    assert!(other.find("to") < other.find("amount"), "{other}");
    assert_eq!(reordered(&json!(12), "12"), None);
}

#[test]
fn other_peoples_hosts_are_refused_wherever_they_stand() {
    let mut check = Check::new("http://example.com/charges");
    assert_eq!(Setup::read(&check).err().unwrap().kind(), ErrorKind::NotYours);
    check.own_host = true;
    assert!(Setup::read(&check).is_ok());
    let mut check = Check::new("http://app/charges");
    assert!(Setup::read(&check).is_ok());
    check.other_url = Some("http://example.com/x".into());
    assert_eq!(Setup::read(&check).err().unwrap().kind(), ErrorKind::NotYours);
}

#[test]
fn nonsense_is_refused() {
    type Spoil = fn(&mut Check);
    let spoils: [Spoil; 6] = [
        |check| check.clients = 1,
        |check| check.rounds = 0,
        |check| check.scenarios = vec!["no-such".into()],
        |check| check.headers.push(("a b".into(), "c".into())),
        |check| check.method = "P ST".into(),
        |check| check.alt_body = Some(check.body.clone()),
    ];
    for spoil in spoils {
        let mut check = Check::new("http://app/charges");
        spoil(&mut check);
        assert_eq!(Setup::read(&check).err().unwrap().kind(), ErrorKind::Invalid);
    }
}

/// A body that was taken from a real request has a key already: no request without a key may carry it, and what
/// makes another body must not only change it.
#[test]
fn a_key_in_the_body_that_was_given_is_taken_out() {
    let mut check = Check::new("http://app/charges");
    check.key_pointer = Some("/of/request_id".into());
    check.body = r#"{"of":{"request_id":"abc"},"amount":12}"#.into();
    check.alt_body = Some(r#"{"of":{"request_id":"def"},"amount":12}"#.into());
    assert!(Setup::read(&check).is_err(), "only the key differs");
    check.alt_body = None;
    let setup = Setup::read(&check).unwrap();
    assert_eq!(setup.request().body, r#"{"amount":12,"of":{}}"#);
    assert_eq!(setup.alt_body.unwrap(), r#"{"amount":13,"of":{}}"#);
}
