//! Secrets that are rotated under traffic: processes with different lists over one store.

use std::sync::Arc;

use onceward::{Filter, OnUnknown, Onceward, Policy, Scan, ScanTarget, Settlement};
use onceward_http::{Route, Secrets};
use onceward_stores::MemoryStore;

use crate::stage::{Answer, Stage};

const A: [u8; 32] = [1; 32];
const B: [u8; 32] = [2; 32];
const C: [u8; 32] = [3; 32];

fn listed(secrets: &[[u8; 32]]) -> Secrets {
    Secrets::new(secrets[0]).with_older(secrets[1..].iter().copied())
}

/// One process for each list, over one store.
async fn processes(lists: &[&[[u8; 32]]], route: impl Fn() -> Route) -> Vec<Arc<Stage>> {
    let store = Arc::new(MemoryStore::new());
    let mut stages = Vec::new();
    for list in lists {
        stages.push(Arc::new(Stage::under(listed(list), store.clone(), route()).await));
    }
    stages
}

fn charges(stages: &[Arc<Stage>]) -> usize {
    stages.iter().map(|stage| stage.charges()).sum()
}

async fn post(stage: &Stage, key: &str, body: &str) -> Answer {
    stage.send("POST", "/charges", &[("Idempotency-Key", key), ("Authorization", "Bearer me")], body).await
}

/// In any order of the lists: processes that share a secret agree on what was done.
#[tokio::test(flavor = "multi_thread")]
async fn processes_that_share_a_secret_race_and_one_of_them_runs() {
    for lists in [
        [&[A, B][..], &[B, A]],
        [&[A], &[A, B]],
        [&[A], &[B, A]],
        [&[A, B], &[B]],
        [&[B, A], &[B]],
        [&[A, B], &[B, C]],
        [&[C, A, B], &[B, A]],
    ] {
        let stages = processes(&lists, Route::default).await;
        for round in 1..=10 {
            let key = format!("round-{round}");
            let mut copies = tokio::task::JoinSet::new();
            for at in 0..20 {
                let (stage, key) = (stages[at % 2].clone(), key.clone());
                copies.spawn(async move { post(&stage, &key, "{}").await });
            }
            let answers = copies.join_all().await;
            assert_eq!(charges(&stages), round, "{lists:?}");
            let fresh = answers.iter().filter(|answer| answer.field("idempotent-replayed").is_none()).count();
            assert_eq!(fresh, 1, "{lists:?}");
            for answer in &answers {
                assert_eq!((answer.status, &answer.body), (201, &answers[0].body), "{lists:?}");
            }
            assert_eq!(post(&stages[0], &key, "[]").await.problem(), "key-reused");
            assert_eq!(post(&stages[1], &key, "[]").await.problem(), "key-reused");
        }
    }
}

/// Step by step, with retries on both sides of each step.
#[tokio::test]
async fn an_answer_survives_a_whole_rotation() {
    let stages = processes(&[&[A], &[A, B], &[B, A], &[B]], Route::default).await;
    for from in 0..3 {
        let key = format!("from-{from}");
        let first = post(&stages[from], &key, "{}").await;
        assert_eq!(first.field("idempotent-replayed"), None);
        let retry = post(&stages[from + 1], &key, "{}").await;
        assert_eq!((&retry.body, retry.field("idempotent-replayed")), (&first.body, Some("true")), "{from}");
    }
    assert_eq!(charges(&stages), 3);
}

/// An unknown outcome is unknown under every secret.
#[tokio::test]
async fn an_unknown_outcome_is_unknown_to_all_processes_that_share_a_secret() {
    let stages = processes(&[&[A, B], &[A], &[B], &[B, A]], Route::default).await;
    assert_eq!(post(&stages[0], "k", "\"unanswered\"").await.status, 504);
    for stage in &stages {
        assert_eq!(post(stage, "k", "\"unanswered\"").await.problem(), "outcome-unknown");
    }
    assert_eq!(charges(&stages), 1);
}

/// What is released is released under every secret.
#[tokio::test]
async fn a_free_key_is_free_for_all() {
    let retry = || {
        Route::builder()
            .with_policy(Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap())
            .build()
            .unwrap()
    };
    for body in ["\"unsent\"", "\"effect none 500\"", "\"unanswered\""] {
        let stages = processes(&[&[A, B], &[A], &[B], &[B, A]], retry).await;
        for (at, stage) in stages.iter().enumerate() {
            assert!(post(stage, "k", body).await.status >= 500);
            assert_eq!(charges(&stages), at + 1, "{body}");
        }
    }
}

/// A crash between two writes may leave the outcome unknown under one secret and recorded under the other.
#[tokio::test]
async fn what_is_done_under_one_secret_is_done_under_the_other() {
    const BODY: &str = "\"lost then 201\"";
    for settled in [0, 1] {
        let store = Arc::new(MemoryStore::new());
        let mut stages = Vec::new();
        for list in [&[A][..], &[B], &[A, B]] {
            stages.push(Stage::under(listed(list), store.clone(), Route::default()).await);
        }
        // Two processes that do not know of each other: unknown under both secrets. Then one is settled.
        for stage in &stages[..2] {
            assert_eq!(post(stage, "k", BODY).await.status, 504);
        }
        let engine = Onceward::builder(store).accept_volatile().build().unwrap();
        let all = Scan::new(ScanTarget::Matching(Filter::default()), 10);
        let ids: Vec<_> = engine.list(&all).await.unwrap().found.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), 2);
        let fence = engine.receipt(&ids[settled]).await.unwrap().unwrap().status.fence();
        let done = Settlement::Done(Route::default().outcome(&http::Response::new("found")));
        engine.settle(&ids[settled], fence, &done, &Policy::http()).await.unwrap();
        // The process that knows both secrets finds it, whichever it looks at first.
        for _ in 0..2 {
            let answer = post(&stages[2], "k", BODY).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "found"));
        }
        assert_eq!(stages[2].charges(), 0);
    }
}

/// A provider recognises an intent by its child key: a run after one with an unknown outcome has the same one, whichever
/// secret is in front by then.
#[tokio::test]
async fn child_keys_stay_the_same_over_a_rotation() {
    for lists in [
        [&[A][..], &[A, B], &[B, A], &[A, B]],
        [&[B], &[B, A], &[A, B], &[B, A]],
        [&[A, B], &[B, A], &[A, B], &[B, A]],
        [&[B, A], &[A, B], &[A, C, B], &[C, A, B]],
    ] {
        let retried = || {
            let policy = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
            Route::builder().with_policy(policy).build().unwrap()
        };
        let stages = processes(&lists, retried).await;
        let mut keys = Vec::new();
        for stage in &stages {
            for _ in 0..2 {
                let answer = post(stage, "k", "\"lost child\"").await;
                assert_eq!(answer.status, 504);
                keys.push(answer.body);
            }
        }
        assert_eq!(charges(&stages), 8, "every try runs");
        assert!(!keys[0].is_empty() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}
