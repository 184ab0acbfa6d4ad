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
    assert!(admission.take_bytes(6) && !admission.take_bytes(5) && admission.take_bytes(4));
    assert!(!admission.take_bytes(usize::MAX / 2));
    assert_eq!(admission.body_bytes(), 10);
    admission.give_bytes(10);
    assert_eq!(admission.body_bytes(), 0);
}
