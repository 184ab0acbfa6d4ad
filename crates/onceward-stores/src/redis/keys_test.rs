use super::*;

fn id(scope: &str, key: &str) -> Id {
    Id::new(scope, "POST /charges", key).unwrap()
}

/// A bucket that changed would hide every record that is stored in it.
#[test]
fn buckets_never_change() {
    let buckets = [("tenant", "1"), ("tenant", "2"), ("other", "1"), ("t", "enant1")];
    assert_eq!(buckets.map(|(scope, key)| bucket(&id(scope, key))), [202, 232, 86, 69]);
}

#[test]
fn steps_are_in_the_bucket_of_their_intent() {
    for key in 0..50 {
        let intent = id("tenant", &key.to_string());
        let step = intent.step("charge").unwrap().step("email").unwrap();
        assert_eq!(bucket(&intent), bucket(&step));
    }
}

#[test]
fn keys_have_the_hash_tag_of_their_bucket() {
    let keys = Keys::new("onceward").unwrap();
    let intent = id("tenant", "1");
    let tag = format!("onceward:{{{}}}:", bucket(&intent));
    let all = [keys.record(&intent), keys.steps(&intent), keys.index(bucket(&intent), State::Done)];
    for key in all {
        assert!(key.starts_with(tag.as_bytes()), "{key:?}");
    }
    assert!(Keys::new("a{b").is_err() && Keys::new("").is_err());
}

#[test]
fn letters_are_those_of_the_scripts() {
    let letters = State::ALL.map(|state| char::from(letter(state)));
    assert_eq!(String::from_iter(letters), "whduxg");
    for script in [include_str!("swap.lua"), include_str!("read.lua")] {
        assert!(script.contains("'^ow1[whduxg]'"));
    }
    assert!(State::ALL.into_iter().all(|named| state(letter(named)) == Some(named)));
    assert_eq!(state(b'z'), None);
}
