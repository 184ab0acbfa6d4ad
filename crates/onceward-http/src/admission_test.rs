//! Tests of the limits of running intents and body bytes.

use super::*;

fn id(scope: &str) -> Id {
    Id::new(scope, "POST /", "k").unwrap()
}

fn refused<T>(admitted: Result<T, Problem>) -> &'static str {
    admitted.err().expect("it is over a bound").name()
}

#[test]
fn permits_are_returned() {
    let admission = Admission::builder().with_running_max(3).with_running_per_scope_max(2).build().unwrap();
    let a = admission.enter(&id("a"), None).ok().unwrap();
    let b = admission.enter(&id("a"), None).ok().unwrap();
    assert_eq!(refused(admission.enter(&id("a"), None)), "quota-exceeded");
    assert_eq!(refused(admission.check(&id("a"), None)), "quota-exceeded");
    let c = admission.enter(&id("b"), None).ok().unwrap();
    assert_eq!(refused(admission.enter(&id("c"), None)), "overloaded");
    assert_eq!(refused(admission.check(&id("c"), None)), "overloaded");
    assert_eq!(admission.running(), 3, "a refused run is not counted");
    drop(a);
    drop(admission.enter(&id("a"), None).ok().unwrap());
    drop((b, c));
    assert_eq!(admission.running(), 0);
    assert!(admission.scopes().is_empty(), "idle scopes are removed");
}

#[test]
fn bytes_are_returned() {
    let admission = Admission::builder().with_body_bytes_max(10).build().unwrap();
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
    let admission = Admission::builder()
        .with_body_bytes_max(1 << 20)
        .with_body_bytes_per_address_max(20_000)
        .build()
        .unwrap();
    let of = |address: [u8; 4]| ReservedBytes::of(Some(ClientAddress(address.into())));
    let (mut greedy, mut small, mut other) = (of([192, 0, 2, 1]), of([192, 0, 2, 1]), of([192, 0, 2, 2]));
    assert_eq!(admission.take_bytes(&mut greedy, 15_000), Ok(()));
    assert_eq!(refused(admission.take_bytes(&mut greedy, 5_001)), "quota-exceeded");
    assert_eq!(admission.take_bytes(&mut greedy, 5_000), Ok(()));
    assert_eq!(admission.take_bytes(&mut small, UNCHARGED_BYTES), Ok(()), "small bodies are not charged");
    assert_eq!(refused(admission.take_bytes(&mut small, 1)), "quota-exceeded");
    assert_eq!(admission.take_bytes(&mut other, 20_000), Ok(()));
    let mut unknown = ReservedBytes::default();
    assert_eq!(admission.take_bytes(&mut unknown, 100_000), Ok(()));
    for reserved in [greedy, small, other, unknown] {
        admission.give_bytes(&reserved);
    }
    assert_eq!(admission.body_bytes(), 0);
    assert!(admission.addresses().is_empty());
}

#[test]
fn one_address_cannot_take_all_that_may_run() {
    let admission = Admission::builder().with_running_per_address_max(2).build().unwrap();
    let (greedy, other) =
        (Some(ClientAddress([192, 0, 2, 1].into())), Some(ClientAddress([192, 0, 2, 2].into())));
    let first = admission.enter(&id("a"), greedy).ok();
    // Each under a scope of its own: whatever a client says of itself does not help it.
    let second = admission.enter(&id("b"), greedy).ok();
    assert!(first.is_some() && second.is_some());
    assert_eq!(refused(admission.check(&id("c"), greedy)), "quota-exceeded");
    assert_eq!(refused(admission.enter(&id("c"), greedy)), "quota-exceeded");
    assert_eq!(admission.running(), 2, "a refused run is not counted");
    assert!(admission.enter(&id("c"), other).is_ok() && admission.enter(&id("c"), None).is_ok());
    drop(first);
    assert!(admission.check(&id("c"), greedy).is_ok());
    drop(second);
    assert!(admission.running_by_address().is_empty(), "idle addresses are removed");
}

#[test]
fn waiting_requests_have_a_bound_of_their_own_and_places_are_returned_once() {
    let admission = Admission::builder().with_running_max(2).build().unwrap();
    let wait = |scope: &str| {
        let place = admission.begin_answering(&id(scope), None).unwrap();
        assert!(place.waits(), "{scope}");
        place
    };
    let places: Vec<_> = (0..4).map(|_| wait("a")).collect();
    // From half of the eight places on, one scope gets two more.
    let charged: Vec<_> = (0..2).map(|_| wait("a")).collect();
    let share = admission.begin_answering(&id("a"), None).unwrap();
    assert!(!share.waits());
    let (other, last) = (wait("b"), wait("c"));
    // All eight are taken, and as many again may be looked up without waiting.
    let at_once: Vec<_> = (0..7).map(|_| admission.begin_answering(&id("d"), None).unwrap()).collect();
    assert!(at_once.iter().all(|place| !place.waits()));
    assert_eq!((admission.answering(), admission.running()), (16, 0));
    assert_eq!(refused(admission.begin_answering(&id("e"), None)), "overloaded");
    assert_eq!(admission.answering(), 16, "a refused request is not counted");
    admission.end_answering(&other);
    let next = wait("e");
    for place in places.iter().chain(&charged).chain(&at_once).chain([&share, &other, &last, &last, &next]) {
        admission.end_answering(place);
    }
    assert_eq!(admission.answering(), 0);
    assert!(charge_map(&admission.waiting_by_scope) == 0);
}

/// A scope is what a client says of itself; an address is not.
#[test]
fn an_address_with_many_scopes_leaves_places_for_others() {
    let admission = Admission::builder().with_answering_max(8).build().unwrap();
    let at = |last: u8| Some(ClientAddress([192, 0, 2, last].into()));
    let mut places = Vec::new();
    for scope in 0..100 {
        places.extend(admission.begin_answering(&id(&format!("s{scope}")), at(1)));
    }
    assert_eq!(places.iter().filter(|place| place.waits()).count(), 6);
    assert_eq!(places.len(), 6 + 8, "as many as may wait are looked up at once");
    places.extend(admission.begin_answering(&id("other"), at(2)));
    places.extend(admission.begin_answering(&id("other"), at(2)));
    assert_eq!(places.iter().filter(|place| place.waits()).count(), 8);
    for place in &places {
        admission.end_answering(place);
    }
    assert_eq!(charge_map(&admission.waiting_by_scope) + charge_map(&admission.waiting_by_address), 0);
}

fn charge_map<K>(counts: &Mutex<HashMap<K, usize>>) -> usize {
    counts.lock().unwrap().len()
}
