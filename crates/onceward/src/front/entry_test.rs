use bytes::Bytes;

use super::*;
use crate::fingerprint::Fingerprint;
use crate::outcome::Outcome;
use crate::receipt::{Attempt, Claim, Done, End, Fence};

fn identity(name: &str, key: u8) -> StoreIdentity {
    StoreIdentity::new(name, [key; 32], 0)
}

fn id(key: &str) -> Id {
    Id::new("tenant", "POST /charges", key).unwrap()
}

fn success() -> Success {
    let claim =
        Claim { fingerprint: Fingerprint::of(b"12"), attempt: Attempt(7), fence: Fence(1_000), tries: 1 };
    let end = End::Outcome(Outcome::succeeded("charged"));
    let status = Status::Done(Done { claim, end, tombstone: None, job: None });
    Success { version: Version(1_005), ends_us: 60_000_000, due_us: NEVER, status }
}

#[test]
fn a_success_comes_back_for_its_own_id_and_store_only() {
    let store = identity("one", 1);
    let sealed = store.seal(&id("a"), &success());
    assert_eq!(store.open(&id("a"), &sealed), Entry::Success(success()));
    assert_eq!(store.open(&id("b"), &sealed), Entry::Foreign, "of another id");
    assert_eq!(identity("two", 1).open(&id("a"), &sealed), Entry::Foreign, "of another store");
    assert_eq!(identity("one", 2).open(&id("a"), &sealed), Entry::Foreign, "under another key");
}

#[test]
fn no_changed_byte_and_no_cut_is_accepted() {
    let store = identity("one", 1);
    let sealed = store.seal(&id("a"), &success());
    for at in 0..sealed.len() {
        let mut changed = sealed.to_vec();
        changed[at] ^= 1;
        let opened = store.open(&id("a"), &Bytes::from(changed));
        assert!(!matches!(opened, Entry::Success(_)), "byte {at} is not under the seal");
        let cut = store.open(&id("a"), &sealed.slice(..at));
        assert!(!matches!(cut, Entry::Success(_)), "an entry that was cut at {at} was accepted");
    }
}

#[test]
fn a_hint_is_no_success() {
    let store = identity("one", 1);
    assert_eq!(store.open(&id("a"), &hint(77)), Entry::Hint { lease_ends_us: 77 });
    for bytes in [&b""[..], b"\x02", b"\x02123456789", b"\x03", b"\x01"] {
        assert_eq!(store.open(&id("a"), &Bytes::copy_from_slice(bytes)), Entry::Foreign);
    }
}

#[test]
fn names_tell_stores_and_ids_apart() {
    let store = identity("one", 1);
    assert_eq!(store.key_of(&id("a")), store.key_of(&id("a")));
    assert_ne!(store.key_of(&id("a")), store.key_of(&id("b")));
    assert_ne!(store.key_of(&id("a")), identity("two", 1).key_of(&id("a")));
    assert_ne!(store.key_of(&id("a")), identity("one", 2).key_of(&id("a")));
}
