//! Tests of the limits of running intents and body bytes.

use super::*;

fn id(scope: &str) -> Id {
    Id::new(scope, "POST /", "k").unwrap()
}

#[test]
fn permits_are_returned() {
    let admission = Admission::new().with_running_max(3).with_running_per_scope_max(2);
    let a = admission.enter(&id("a")).ok().unwrap();
    let b = admission.enter(&id("a")).ok().unwrap();
    assert_eq!(admission.enter(&id("a")).err(), Some(quota_exceeded()));
    assert_eq!(admission.check(&id("a")).err(), Some(quota_exceeded()));
    let c = admission.enter(&id("b")).ok().unwrap();
    assert_eq!(admission.enter(&id("c")).err(), Some(Problem::Overloaded));
    assert_eq!(admission.check(&id("c")).err(), Some(Problem::Overloaded));
    assert_eq!(admission.running(), 3, "a refused run is not counted");
    drop(a);
    drop(admission.enter(&id("a")).ok().unwrap());
    drop((b, c));
    assert_eq!(admission.running(), 0);
    assert!(admission.scopes().is_empty(), "idle scopes are removed");
}

#[test]
fn bytes_are_returned() {
    let admission = Admission::new().with_body_bytes_max(10);
    let mut reserved = ReservedBytes::default();
    let mut take = |bytes| admission.take_bytes(&mut reserved, bytes).is_ok();
    assert!(take(6) && !take(5) && take(4));
    assert!(!take(usize::MAX / 2));
    assert_eq!(admission.body_bytes(), 10);
    admission.give_bytes(&reserved);
    assert_eq!(admission.body_bytes(), 0);
}

#[test]
fn one_client_cannot_take_the_memory_of_all() {
    let admission = Admission::new().with_body_bytes_max(1 << 20).with_body_bytes_per_address_max(20_000);
    let of = |address: [u8; 4]| ReservedBytes::of(Some(ClientAddress(address.into())));
    let (mut greedy, mut small, mut other) = (of([192, 0, 2, 1]), of([192, 0, 2, 1]), of([192, 0, 2, 2]));
    assert_eq!(admission.take_bytes(&mut greedy, 15_000), Ok(()));
    assert_eq!(admission.take_bytes(&mut greedy, 5_001), Err(quota_exceeded()));
    assert_eq!(admission.take_bytes(&mut greedy, 5_000), Ok(()));
    assert_eq!(admission.take_bytes(&mut small, UNCHARGED_BYTES), Ok(()), "small bodies are not charged");
    assert_eq!(admission.take_bytes(&mut small, 1), Err(quota_exceeded()));
    assert_eq!(admission.take_bytes(&mut other, 20_000), Ok(()));
    let mut unknown = ReservedBytes::default();
    assert_eq!(admission.take_bytes(&mut unknown, 100_000), Ok(()));
    for reserved in [greedy, small, other, unknown] {
        admission.give_bytes(&reserved);
    }
    assert_eq!(admission.body_bytes(), 0);
    assert!(admission.addresses().is_empty());
}
