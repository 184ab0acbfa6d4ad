use super::*;

/// The bound is on claims: one id may have any number of them.
#[test]
fn claims_of_one_id_are_bounded_too() {
    let owed = OwedReleases::new(2);
    let id = Id::new("scope", "operation", "key").unwrap();
    let target = |attempt| ReleaseTarget { attempt: Attempt(attempt), began: None };
    assert!(owed.add(&id, target(1)) && owed.add(&id, target(2)));
    assert!(!owed.add(&id, target(3)));
    owed.remove(&id, target(3));
    assert!(!owed.add(&id, target(3)), "it was not there");
    owed.remove(&id, target(1));
    assert!(owed.add(&id, target(3)));
    owed.remove(&id, target(2));
    owed.remove(&id, target(3));
    assert!(owed.targets.lock().by_id.is_empty());
}
