use onceward::receipt::{Held, Status};
use onceward::{Fence, OnUnknown};
use onceward_stores::MemoryStore;

use super::*;
use crate::client::open;

fn id(key: &str) -> Id {
    Id::new("client", "send", key).unwrap()
}

fn request(key: &str, length: usize) -> Swap {
    let claim = open::claim(Fingerprint::of(b""), Attempt(1));
    open::swap(id(key).step("request").unwrap(), claim, vec![0; length].into())
}

fn of(asked: &[u8], attempt: u128) -> Claim {
    Claim { fingerprint: Fingerprint::of(asked), attempt: Attempt(attempt), fence: Fence(0) }
}

fn claim(key: &str, seen: Seen) -> Swap {
    let claim = of(b"", 7);
    let status = Status::Held(Held { claim, on_unknown: OnUnknown::Retry });
    let new = Some(Record { state: State::Held, due_in: None, bytes: codec::encode(&status) });
    Swap { id: id(key), seen, new }
}

fn riding() -> Arc<Riding> {
    Riding::new(Arc::new(MemoryStore::new()))
}

fn seat(riding: &Arc<Riding>, key: &str, attempt: u128) -> Seat {
    riding.seat(&id(key), request(key, 10), &of(b"", attempt), Name::Given)
}

async fn is_there(riding: &Riding, key: &str) -> bool {
    riding.store.load(&[id(key).step("request").unwrap()]).await.unwrap()[0].is_some()
}

#[tokio::test]
async fn a_request_travels_with_its_claim_and_the_claims_get_their_own_answers() {
    let riding = riding();
    let (mut a, mut c) = (seat(&riding, "a", 1), seat(&riding, "c", 2));
    let batch = ["a", "b", "c"].map(|key| claim(key, Seen::Absent));
    let swapped = riding.swap(&batch).await.unwrap();
    assert_eq!(swapped.len(), 3);
    assert!(swapped.iter().all(|swapped| matches!(swapped, Swapped::Won(_))));
    for seat in [&mut a, &mut c] {
        let arrived = seat.arrived().unwrap();
        assert!(matches!((arrived.swapped, arrived.claim), (Ok(Swapped::Won(_)), Rode::Won)));
        assert!(seat.arrived().is_none(), "told once");
    }
    assert!(is_there(&riding, "a").await && is_there(&riding, "c").await);
    assert!(!is_there(&riding, "b").await, "nobody asked for it");
}

#[tokio::test]
async fn nothing_rides_to_an_intent_that_has_a_receipt_nor_with_a_takeover() {
    let riding = riding();
    let Swapped::Won(version) = riding.swap(&[claim("a", Seen::Absent)]).await.unwrap().remove(0) else {
        panic!("there was nothing there")
    };
    let mut late = seat(&riding, "a", 1);
    assert!(matches!(riding.swap(&[claim("a", Seen::Absent)]).await.unwrap()[0], Swapped::Lost(Some(_))));
    assert!(late.arrived().is_none() && !is_there(&riding, "a").await);
    let mut over = seat(&riding, "a", 2);
    assert!(matches!(riding.swap(&[claim("a", Seen::Version(version))]).await.unwrap()[0], Swapped::Won(_)));
    assert!(over.arrived().is_none() && !is_there(&riding, "a").await);
}

#[tokio::test]
async fn one_seat_an_intent_and_none_for_what_is_too_large() {
    let riding = riding();
    let first = seat(&riding, "a", 1);
    assert!(seat(&riding, "a", 2).taken.is_none());
    drop(first);
    assert!(seat(&riding, "a", 3).taken.is_some(), "a seat that is given up is free");
    let large = riding.seat(&id("b"), request("b", RIDERS_BYTES_MAX), &of(b"", 4), Name::Random);
    assert!(large.taken.is_none());
}

/// The first caller goes away while its request is under way, and a second one takes the seat: what
/// became of the first one's request is not taken for an answer about the second's.
#[tokio::test]
async fn a_seat_is_never_told_of_another_ones_request() {
    let riding = riding();
    let first = seat(&riding, "a", 1);
    let batch = [claim("a", Seen::Absent)];
    let under_way = riding.swap(&batch);
    drop(first);
    let mut second = seat(&riding, "a", 2);
    under_way.await.unwrap();
    assert!(second.arrived().is_none());
}

#[tokio::test]
async fn nothing_rides_with_a_claim_for_another_request() {
    let riding = riding();
    let mut other = riding.seat(&id("a"), request("a", 10), &of(b"something else", 1), Name::Given);
    assert!(matches!(riding.swap(&[claim("a", Seen::Absent)]).await.unwrap()[0], Swapped::Won(_)));
    assert!(other.arrived().is_none() && !is_there(&riding, "a").await);
}

/// Nobody looks for a receipt under a random name, so this is what a claim that came too late looks like.
#[tokio::test]
async fn a_request_whose_claim_was_lost_is_not_taken_for_one_under_a_claim() {
    let riding = riding();
    riding.swap(&[claim("a", Seen::Absent)]).await.unwrap();
    let mut late = riding.seat(&id("a"), request("a", 10), &of(b"", 1), Name::Random);
    assert!(matches!(riding.swap(&[claim("a", Seen::Absent)]).await.unwrap()[0], Swapped::Lost(Some(_))));
    let arrived = late.arrived().unwrap();
    assert!(matches!((arrived.swapped, arrived.claim), (Ok(Swapped::Won(_)), Rode::Apart)));
    assert!(is_there(&riding, "a").await);
}
