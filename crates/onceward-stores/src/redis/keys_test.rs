use super::*;

fn id(scope: &str, key: &str) -> Id {
    Id::new(scope, "POST /charges", key).unwrap()
}

/// A bucket that changed would hide every record that is stored in it.
#[test]
fn buckets_never_change() {
    let buckets = [("tenant", "1"), ("tenant", "2"), ("other", "1"), ("t", "enant1")];
    let divided = Keys::new("onceward", BUCKETS_MAX).unwrap();
    assert_eq!(buckets.map(|(scope, key)| divided.bucket(&id(scope, key))), [202, 232, 86, 69]);
    let whole = divided.divided(1).unwrap();
    assert_eq!(buckets.map(|(scope, key)| whole.bucket(&id(scope, key))), [0; 4]);
}

#[test]
fn steps_are_in_the_bucket_of_their_intent() {
    let keys = Keys::new("onceward", BUCKETS_MAX).unwrap();
    for key in 0..50 {
        let intent = id("tenant", &key.to_string());
        let step = intent.step("charge").unwrap().step("email").unwrap();
        assert_eq!(keys.bucket(&intent), keys.bucket(&step));
    }
}

#[test]
fn keys_have_the_hash_tag_of_their_bucket() {
    let keys = Keys::new("onceward", BUCKETS_MAX).unwrap();
    let intent = id("tenant", "1");
    let bucket = keys.bucket(&intent);
    let tag = format!("onceward:{{{bucket}}}:");
    let all = [keys.record(&intent), keys.steps(&intent), keys.index(bucket, State::Done)];
    for key in all {
        assert!(key.starts_with(tag.as_bytes()), "{key:?}");
    }
    assert!(Keys::new("a{b", 1).is_err() && Keys::new("", 1).is_err());
}

#[test]
fn letters_are_those_of_the_scripts() {
    let letters = State::ALL.map(|state| char::from(letter(state)));
    assert_eq!(String::from_iter(letters), "whduxg");
    assert!(include_str!("read.lua").contains("'^ow1[whduxg]'"));
    for letter in letters {
        assert!(include_str!("swap.lua").contains(&format!("ow1{letter} = '{letter}'")));
    }
    assert!(State::ALL.into_iter().all(|named| state(letter(named)) == Some(named)));
    assert_eq!(state(b'z'), None);
}
