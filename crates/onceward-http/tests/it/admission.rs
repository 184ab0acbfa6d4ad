//! The limits of running intents, of one caller and of bodies in memory.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use onceward::{ErrorKind, Limits};
use onceward_http::{Admission, KeyRule, Route, Shedding};
use onceward_stores::MemoryStore;

use crate::held_store::{HeldStore, Holds};
use crate::stage::{Stage, until};

async fn within(admission: Admission) -> Arc<Stage> {
    let store = Arc::new(MemoryStore::new());
    Arc::new(Stage::within(admission, store, Limits::default(), Route::default()).await)
}

#[tokio::test]
async fn new_work_over_the_bound_is_refused_while_replays_pass_and_duplicates_wait() {
    let stage = within(Admission::builder().with_running_max(1).build().unwrap()).await;
    let done = stage.post("done", "{}").await;
    stage.gate.send_replace(false);
    let running = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], "{}").await;
    stage.charges_begun(2).await;
    let duplicate = tokio::spawn({
        let stage = stage.clone();
        async move { stage.post("k", "{}").await }
    });
    let refused = stage.post("new", "{}").await;
    assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
    assert!(matches!(refused.field("retry-after"), Some("1" | "2")));
    assert!(refused.body.contains("\"retryable\":true"), "{}", refused.body);
    for _ in 0..2 {
        let replay = stage.post("done", "{}").await;
        assert_eq!((&replay.body, replay.field("idempotent-replayed")), (&done.body, Some("true")));
    }
    assert_eq!(stage.post("k", "[]").await.problem(), "key-reused");
    stage.gate.send_replace(true);
    assert_eq!(duplicate.await.unwrap().body, "charge 2");
    drop(running);
    until("the permit was not returned", || stage.admission.running() == 0).await;
    assert_eq!(stage.post("new", "{}").await.status, 201);
    assert_eq!(stage.charges(), 3);
}

/// With any number of requests at once, no more run than the limit allows, and every request is answered.
#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_stay_within_the_limit() {
    let stage = within(Admission::builder().with_running_max(3).build().unwrap()).await;
    stage.gate.send_replace(false);
    let mut posts = tokio::task::JoinSet::new();
    for at in 0..50 {
        let stage = stage.clone();
        posts.spawn(async move { stage.post(&format!("k{at}"), "{}").await });
    }
    let mut refused = 0;
    while refused < 47 {
        let answer = posts.join_next().await.unwrap().unwrap();
        assert_eq!((answer.status, answer.problem()), (503, "overloaded"));
        refused += 1;
    }
    assert_eq!((stage.charges(), stage.admission.running()), (3, 3));
    stage.gate.send_replace(true);
    assert!(posts.join_all().await.iter().all(|answer| answer.status == 201));
}

/// Waiting duplicates have a bound of their own. Over it nobody waits, and everything else goes on.
#[tokio::test]
async fn waiting_duplicates_over_their_bound_are_told_to_come_again_and_keep_nobody_from_new_work() {
    let admission = Admission::builder().with_running_max(10).with_answering_max(8).build().unwrap();
    // No cache: a replay is looked up in the store.
    let limits = Limits::default().with_cache_bytes_max(0);
    let stage = Stage::within(admission, Arc::new(MemoryStore::new()), limits, Route::default()).await;
    let stage = Arc::new(stage);
    let done = stage.post("done", "{}").await;
    stage.gate.send_replace(false);
    let by = async |who: &str, key: &str, body: &str| {
        let who = format!("Bearer {who}");
        stage.send("POST", "/charges", &[("Idempotency-Key", key), ("Authorization", &who)], body).await
    };
    let mut running = Vec::new();
    for who in ["a", "b"] {
        let fields = [("Idempotency-Key", "r"), ("Authorization", &*format!("Bearer {who}"))];
        running.push(stage.begin("POST", "/charges", &fields, "{}").await);
    }
    stage.charges_begun(3).await;
    assert_eq!(
        (stage.admission.running(), stage.admission.answering()),
        (2, 0),
        "what runs waits for nothing"
    );
    let mut waiting = tokio::task::JoinSet::new();
    let mut wait = |who: &'static str| {
        let stage = stage.clone();
        waiting.spawn(async move {
            let fields = [("Idempotency-Key", "r"), ("Authorization", &*format!("Bearer {who}"))];
            stage.send("POST", "/charges", &fields, "{}").await
        });
    };
    // One caller takes half of the places, and a quarter more.
    for places in 1..=6 {
        wait("a");
        until("it does not wait", || stage.admission.answering() == places).await;
    }
    let refused = by("a", "r", "{}").await;
    assert_eq!((refused.status, refused.problem()), (409, "in-progress"));
    assert!(refused.field("retry-after").is_some());
    // Others still may wait, until all places are taken.
    for places in 7..=8 {
        wait("b");
        until("it does not wait", || stage.admission.answering() == places).await;
    }
    assert_eq!(by("b", "r", "{}").await.problem(), "in-progress");
    // New work begins, what is done is replayed, and another request under a running key is refused as that.
    let new = stage.begin("POST", "/charges", &[("Idempotency-Key", "new")], "{}").await;
    stage.charges_begun(4).await;
    for _ in 0..3 {
        let replay = stage.post("done", "{}").await;
        assert_eq!((&replay.body, replay.field("idempotent-replayed")), (&done.body, Some("true")));
    }
    assert_eq!(by("a", "r", "[]").await.problem(), "key-reused");
    stage.gate.send_replace(true);
    let answers = waiting.join_all().await;
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    until("a place was not returned", || stage.admission.answering() == 0).await;
    drop((running, new));
    assert_eq!(stage.charges(), 4);
}

/// Over their bound requests do not wait, but are looked up in the store, which is bounded as well.
#[tokio::test]
async fn lookups_beyond_twice_their_bound_are_refused_before_the_store_is_asked() {
    for cache_bytes_max in [0, 1 << 20] {
        let admission = Admission::builder().with_answering_max(2).build().unwrap();
        let (store, hold) = HeldStore::new(Holds::Swaps);
        let limits = Limits::default().with_cache_bytes_max(cache_bytes_max);
        let stage = Arc::new(Stage::within(admission, store, limits, Route::default()).await);
        for at in 0..5 {
            // A receipt is cached once it is replayed.
            for _ in 0..2 {
                assert_eq!(stage.post(&format!("done-{at}"), "{}").await.status, 201);
            }
        }
        hold.send_replace(true);
        // Replays where there is no cache, and new work where there is one.
        let key = |at| format!("{}-{at}", if cache_bytes_max == 0 { "done" } else { "new" });
        let mut asked = tokio::task::JoinSet::new();
        for at in 0..4 {
            let (stage, key) = (stage.clone(), key(at));
            asked.spawn(async move { stage.post(&key, "{}").await });
        }
        until("the requests were not looked up", || stage.admission.answering() == 4).await;
        let last = key(4);
        let one_more = tokio::time::timeout(Duration::from_secs(20), stage.post(&last, "{}"));
        let refused = one_more.await.expect("it waits for the store");
        assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
        assert!(refused.field("retry-after").is_some());
        if cache_bytes_max > 0 {
            let replay = stage.post("done-0", "{}").await;
            assert_eq!((replay.status, replay.field("idempotent-replayed")), (201, Some("true")));
        }
        hold.send_replace(false);
        assert!(asked.join_all().await.iter().all(|answer| answer.status == 201));
        until("a place was not returned", || stage.admission.answering() == 0).await;
        assert_eq!(stage.post(&last, "{}").await.status, 201);
    }
}

#[test]
fn a_limit_of_zero_is_refused() {
    for (name, limits) in [
        ("running_max", Admission::builder().with_running_max(0)),
        ("running_per_scope_max", Admission::builder().with_running_per_scope_max(0)),
        ("running_per_address_max", Admission::builder().with_running_per_address_max(0)),
        ("answering_max", Admission::builder().with_answering_max(0)),
    ] {
        let error = limits.build().expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let why = error.to_string();
        assert!(why.contains(name) && why.contains("at least 1"), "{why}");
    }
}

/// A route of its own sheds by itself, and requests without a key are work like any other.
#[tokio::test]
async fn requests_without_a_key_are_counted_and_shed_and_another_route_is_not() {
    let shedding = Shedding::new(Duration::from_secs(3_600)).with_in_flight_min(20);
    let route = || Route::builder().with_key(KeyRule::Optional).with_shedding(shedding);
    let slow = Stage::start(route().build().unwrap()).await;
    let other = Stage::start(route().build().unwrap()).await;
    slow.gate.send_replace(false);
    let mut running = Vec::new();
    // Sixteen of twenty are for everybody, and one caller alone may have the rest.
    for at in 0..20 {
        let who = format!("Bearer {}", at % 2);
        let key = format!("k{at}");
        let fields = [("Authorization", who.as_str()), ("Idempotency-Key", key.as_str())];
        let fields = if at % 3 == 0 { &fields[..] } else { &fields[..1] };
        running.push(slow.begin("POST", "/charges", fields, "{}").await);
        slow.charges_begun(at + 1).await;
    }
    for fields in [&[][..], &[("Idempotency-Key", "new")]] {
        let refused = slow.send("POST", "/charges", fields, "{}").await;
        assert_eq!((refused.status, refused.problem()), (503, "overloaded"), "{fields:?}");
        assert!(refused.field("retry-after").is_some());
    }
    slow.gate.send_replace(true);
    until("a permit was not returned", || slow.admission.running() == 0).await;
    drop(running);
    let again = async {
        while slow.send("POST", "/charges", &[], "{}").await.status != 201 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("the permits were not returned");
    assert_eq!(other.send("POST", "/charges", &[], "{}").await.status, 201);
}

/// Over four fifths of the limit, the last places are for first tries, and each caller has a share of them.
#[tokio::test]
async fn a_full_route_sheds_retries_first_and_then_callers_over_their_share() {
    let shedding = Shedding::new(Duration::from_secs(3_600)).with_in_flight_min(20);
    let stage = Stage::start(Route::builder().with_shedding(shedding).build().unwrap()).await;
    stage.gate.send_replace(false);
    let mut running = Vec::new();
    for at in 0..16 {
        let (who, key) = (if at == 0 { "Bearer other" } else { "Bearer greedy" }, format!("k{at}"));
        let fields = [("Authorization", who), ("Idempotency-Key", &key)];
        running.push(stage.begin("POST", "/charges", &fields, "{}").await);
        stage.charges_begun(at + 1).await;
    }
    let by = |who, which| [("Authorization", who), ("Idempotency-Key", "new"), ("Onceward-Try", which)];
    let again = stage.send("POST", "/charges", &by("Bearer other", "2"), "{}").await;
    assert_eq!((again.status, again.problem()), (503, "overloaded"));
    let greedy = stage.send("POST", "/charges", &by("Bearer greedy", "1"), "{}").await;
    assert_eq!((greedy.status, greedy.problem()), (429, "quota-exceeded"));
    assert!(again.field("retry-after").is_some() && greedy.field("retry-after").is_some());
    running.push(stage.begin("POST", "/charges", &by("Bearer other", "1"), "{}").await);
    stage.charges_begun(17).await;
    stage.gate.send_replace(true);
    until("a permit was not returned", || stage.admission.running() == 0).await;
    drop(running);
}

/// A route that is made from another one measures by itself.
#[tokio::test]
async fn a_route_that_is_built_from_another_one_has_a_limit_of_its_own() {
    let shedding = Shedding::new(Duration::from_secs(3_600));
    let route = Route::builder().with_shedding(shedding).build().unwrap();
    let derived = route.to_builder().build().unwrap();
    assert_eq!(derived.shedding(), Some(shedding));
    let stage = Stage::start(route.clone()).await;
    stage.gate.send_replace(false);
    let running = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], "{}").await;
    stage.charges_begun(1).await;
    let in_flight = |route: &Route| route.shedding_state().map(|(_, in_flight)| in_flight);
    assert_eq!((in_flight(&route), in_flight(&derived)), (Some(1), Some(0)));
    stage.gate.send_replace(true);
    drop(running);
}

#[tokio::test]
async fn a_caller_over_its_quota_is_refused_and_others_are_not() {
    let stage = within(Admission::builder().with_running_per_scope_max(1).build().unwrap()).await;
    stage.gate.send_replace(false);
    let by =
        |who| [("Idempotency-Key", "k"), ("Authorization", if who == "a" { "Bearer a" } else { "Bearer b" })];
    let running = [
        stage.begin("POST", "/charges", &by("a"), "{}").await,
        stage.begin("POST", "/charges", &by("b"), "{}").await,
    ];
    stage.charges_begun(2).await;
    let again = [("Idempotency-Key", "other"), ("Authorization", "Bearer a")];
    let refused = stage.send("POST", "/charges", &again, "{}").await;
    assert_eq!((refused.status, refused.problem()), (429, "quota-exceeded"));
    assert!(matches!(refused.field("retry-after"), Some("1" | "2")));
    stage.gate.send_replace(true);
    until("the permit was not returned", || stage.admission.running() == 0).await;
    assert_eq!(stage.send("POST", "/charges", &again, "{}").await.status, 201);
    drop(running);
}

#[tokio::test]
async fn bodies_in_memory_are_bounded_and_released() {
    let stage = within(Admission::builder().with_body_bytes_max(100).build().unwrap()).await;
    let large = format!("\"{}\"", "x".repeat(60));
    stage.gate.send_replace(false);
    let running = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], &large).await;
    stage.charges_begun(1).await;
    let refused = stage.post("other", &large).await;
    assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
    stage.gate.send_replace(true);
    drop(running);
    until("the permit was not returned", || stage.admission.body_bytes() == 0).await;
    assert_eq!(stage.post("other", &large).await.status, 201);
}

/// Each new key is a receipt until its retention ends. The number that one caller may begin within a time is bounded; replays and freed keys do
/// not count.
#[tokio::test]
async fn new_keys_over_the_bound_are_refused_before_they_are_claimed() {
    let (two, hour) = (NonZeroU32::new(2).unwrap(), Duration::from_hours(1));
    let admission = Admission::builder().with_new_keys_per_scope_max(two, hour).build().unwrap();
    // No cache: a replay is looked up in the store.
    let limits = Limits::default().with_cache_bytes_max(0);
    let (store, hold) = HeldStore::new(Holds::Swaps);
    let stage = Stage::within(admission, store, limits, Route::default()).await;
    let by = async |who: &str, key: &str, body: &str| {
        let who = format!("Bearer {who}");
        stage.send("POST", "/charges", &[("Idempotency-Key", key), ("Authorization", &who)], body).await
    };
    for _ in 0..3 {
        assert_eq!(by("a", "freed", "status 429").await.body.split(' ').next(), Some("try"));
    }
    for key in ["k1", "k2"] {
        assert_eq!(by("a", key, "{}").await.status, 201);
    }
    // A claim would wait now.
    hold.send_replace(true);
    let refused = by("a", "k3", "{}").await;
    assert_eq!((refused.status, refused.problem()), (429, "quota-exceeded"));
    let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    // One is back after half an hour. With jitter, so that not all come back at once.
    assert!((1_790..=2_701).contains(&after), "{after}");
    hold.send_replace(false);
    for key in ["k1", "k2"] {
        let replay = by("a", key, "{}").await;
        assert_eq!((replay.status, replay.field("idempotent-replayed")), (201, Some("true")));
    }
    assert_eq!(by("b", "k3", "{}").await.status, 201, "another caller");
    let bounds: Vec<_> = stage.admission.new_keys().collect();
    assert_eq!(bounds, [("scope", 2, 1)]);
}

/// A key with a receipt is no new one, whatever the receipt says: its retry is not refused by the bound.
#[tokio::test]
async fn a_retry_of_a_key_that_was_begun_is_not_a_new_key() {
    let one = NonZeroU32::MIN;
    let admission =
        Admission::builder().with_new_keys_per_scope_max(one, Duration::from_hours(1)).build().unwrap();
    let stage = within(admission).await;
    stage.gate.send_replace(false);
    let running = stage.begin("POST", "/charges", &[("Idempotency-Key", "k")], "{}").await;
    stage.charges_begun(1).await;
    assert_eq!(stage.post("other", "{}").await.problem(), "quota-exceeded");
    let duplicate = tokio::spawn({
        let stage = stage.clone();
        async move { stage.post("k", "{}").await }
    });
    until("the duplicate does not wait", || stage.admission.answering() == 1).await;
    assert_eq!(stage.post("k", "[]").await.problem(), "key-reused");
    stage.gate.send_replace(true);
    assert_eq!(duplicate.await.unwrap().status, 201);
    drop(running);
    assert_eq!(stage.charges(), 1);
}
