//! The barrier, in transactions of PostgreSQL: every order of action and undo, also at the same time.

use std::sync::Arc;

use onceward::{Onceward, Outcome, Policy};
use onceward_flows::Direction::{Action, Undo};
use onceward_flows::{Barrier, Direction, Entered, KeyedCall, barrier};
use onceward_stores::sql::postgres::PostgresStore;
use onceward_stores::sql::{InTransaction, Options};
use tokio_postgres::Client;

use crate::servers::Postgres;
use crate::support::connect;

type Calls = &'static [(Direction, &'static str)];

/// How a call says what it is.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// By its saga, its step and its direction.
    ByStep,
    /// By its own key; an undo names that of its action.
    ByKey,
}

/// One call of a coordinator, as a participant handles it, and what came of it.
async fn call(onceward: &Onceward, client: &mut Client, saga: &str, direction: Direction) -> &'static str {
    call_known(Known::ByStep, onceward, client, saga, direction).await
}

async fn call_known(
    known: Known,
    onceward: &Onceward,
    client: &mut Client,
    saga: &str,
    direction: Direction,
) -> &'static str {
    let mut tx = client.transaction().await.unwrap();
    let mut joined = InTransaction(&mut tx);
    let entered = match known {
        Known::ByStep => barrier(onceward, &mut joined, saga, "charge", direction).await,
        Known::ByKey => {
            let undo_key = format!("undo of {saga}");
            let (charge, refund) =
                (KeyedCall::new("POST /charges", saga), KeyedCall::new("POST /refunds", &undo_key));
            let barrier = Barrier::new(onceward.clone()).with_scope("the coordinator");
            match direction {
                Action => barrier.enter_by_key(&mut joined, charge, None).await,
                Undo => barrier.enter_by_key(&mut joined, refund, Some(charge)).await,
            }
        }
    };
    let said = match entered.unwrap() {
        Entered::Run(guard) => {
            let amount: i64 = if direction == Action { 12 } else { -12 };
            tx.execute("INSERT INTO charges VALUES ($1, $2)", &[&saga, &amount]).await.unwrap();
            guard.complete_in(&mut InTransaction(&mut tx), &Outcome::succeeded("ch_1")).await.unwrap();
            "ran"
        }
        Entered::AlreadyDone(outcome) => {
            assert_eq!(outcome.body(), "ch_1");
            "already done"
        }
        Entered::NothingToUndo => "nothing to undo",
        Entered::Closed => "closed",
    };
    tx.commit().await.unwrap();
    said
}

async fn fresh() -> Option<(Onceward, String, Client)> {
    let server = Postgres::shared()?;
    let url = server.url(&server.fresh());
    let store = PostgresStore::open(&url, Options::default()).await.unwrap();
    let client = connect(&url).await;
    client.batch_execute("CREATE TABLE charges (saga text, amount bigint)").await.unwrap();
    Some((Onceward::new(Arc::new(store)).unwrap(), url, client))
}

async fn effects(client: &Client, saga: &str) -> Vec<i64> {
    let select = "SELECT amount FROM charges WHERE saga = $1 ORDER BY amount DESC";
    client.query(select, &[&saga]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn every_order_of_calls_leaves_an_effect_with_its_undo_or_neither() {
    let Some((onceward, _, mut client)) = fresh().await else { return };
    for known in [Known::ByStep, Known::ByKey] {
        every_order(known, &onceward, &mut client).await;
    }
}

async fn every_order(known: Known, onceward: &Onceward, client: &mut Client) {
    let orders: [(&str, Calls, &[i64]); 4] = [
        ("done", &[(Action, "ran"), (Action, "already done")], &[12]),
        (
            "undone",
            &[(Action, "ran"), (Undo, "ran"), (Undo, "already done"), (Action, "already done")],
            &[12, -12],
        ),
        ("null", &[(Undo, "nothing to undo"), (Undo, "nothing to undo")], &[]),
        ("late", &[(Undo, "nothing to undo"), (Action, "closed"), (Undo, "nothing to undo")], &[]),
    ];
    for (saga, calls, left) in orders {
        // One table for both.
        let saga = &format!("{saga} {known:?}");
        for (direction, expected) in calls {
            assert_eq!(call_known(known, onceward, client, saga, *direction).await, *expected, "{saga}");
        }
        assert_eq!(effects(client, saga).await, left, "{saga}");
    }
}

/// Action, undo, and copies of both, all at once: never an effect without its undo, nor an undo without its effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_time_wait_for_each_other() {
    let Some((onceward, url, client)) = fresh().await else { return };
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&url).await);
    }
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..50 {
        let (saga, known) =
            (format!("saga-{round}"), if round % 2 == 0 { Known::ByStep } else { Known::ByKey });
        let calls = clients.iter_mut().zip([Action, Undo, Action, Undo]);
        let calls = calls.map(|(client, direction)| call_known(known, &onceward, client, &saga, direction));
        futures_util::future::join_all(calls).await;
        let effects = effects(&client, &saga).await;
        assert!(effects.is_empty() || effects == [12, -12], "{effects:?}");
        seen.insert(effects.len());
    }
    println!("saw {seen:?} effects");
}

/// What was refused has nothing to undo, and an undo that failed is not recorded.
#[tokio::test]
async fn a_refused_action_has_nothing_to_undo() {
    let Some((onceward, _, mut client)) = fresh().await else { return };
    let mut tx = client.transaction().await.unwrap();
    let Entered::Run(guard) =
        barrier(&onceward, &mut InTransaction(&mut tx), "s", "charge", Action).await.unwrap()
    else {
        panic!("nothing was there")
    };
    guard.complete_in(&mut InTransaction(&mut tx), &Outcome::failed("declined")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(call(&onceward, &mut client, "s", Undo).await, "nothing to undo");
    assert_eq!(call(&onceward, &mut client, "t", Action).await, "ran");
    let mut tx = client.transaction().await.unwrap();
    let Entered::Run(guard) =
        barrier(&onceward, &mut InTransaction(&mut tx), "t", "charge", Undo).await.unwrap()
    else {
        panic!("it is to be undone")
    };
    assert!(guard.complete_in(&mut InTransaction(&mut tx), &Outcome::failed("no")).await.is_err());
    tx.rollback().await.unwrap();
    assert_eq!(call(&onceward, &mut client, "t", Undo).await, "ran");
}

/// A policy may say how long is remembered, and not that a failure or a duplicate is run.
#[tokio::test]
async fn a_policy_does_not_weaken_the_barrier() {
    let Some((onceward, _, mut client)) = fresh().await else { return };
    let lax = Policy::queue().to_builder().with_on_failure(onceward::OnFailure::Retry).build().unwrap();
    let barrier = Barrier::new(onceward).with_policy(&lax);
    let mut tx = client.transaction().await.unwrap();
    let Entered::Run(guard) =
        barrier.enter(&mut InTransaction(&mut tx), "s", "charge", Action).await.unwrap()
    else {
        panic!("the first call runs");
    };
    guard.complete_in(&mut InTransaction(&mut tx), &Outcome::failed("declined")).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let again = barrier.enter(&mut InTransaction(&mut tx), "s", "charge", Action).await.unwrap();
    assert!(matches!(&again, Entered::AlreadyDone(outcome) if outcome.body() == "declined"), "{again:?}");
}

/// Keys of other operations and other callers are other calls; and an undo that names itself is refused.
#[tokio::test]
async fn a_call_by_key_is_of_its_operation_and_its_caller() {
    let Some((onceward, _, mut client)) = fresh().await else { return };
    let charge = KeyedCall::new("POST /charges", "k");
    for (scope, call) in [("a", charge), ("b", charge), ("a", KeyedCall::new("POST /payouts", "k"))] {
        let barrier = Barrier::new(onceward.clone()).with_scope(scope);
        let mut tx = client.transaction().await.unwrap();
        let Entered::Run(guard) =
            barrier.enter_by_key(&mut InTransaction(&mut tx), call, None).await.unwrap()
        else {
            panic!("{scope} {call:?} was there")
        };
        guard.complete_in(&mut InTransaction(&mut tx), &Outcome::succeeded("done")).await.unwrap();
        tx.commit().await.unwrap();
    }
    let barrier = Barrier::new(onceward).with_scope("a");
    let mut tx = client.transaction().await.unwrap();
    let itself = barrier.enter_by_key(&mut InTransaction(&mut tx), charge, Some(charge)).await.unwrap_err();
    assert_eq!(itself.kind(), onceward::ErrorKind::Invalid);
    tx.rollback().await.unwrap();
    // An undo that failed is not recorded here either.
    let mut tx = client.transaction().await.unwrap();
    let refund = KeyedCall::new("POST /refunds", "u");
    let Entered::Run(guard) =
        barrier.enter_by_key(&mut InTransaction(&mut tx), refund, Some(charge)).await.unwrap()
    else {
        panic!("it is to be undone")
    };
    assert!(guard.complete_in(&mut InTransaction(&mut tx), &Outcome::failed("no")).await.is_err());
    tx.rollback().await.unwrap();
}
