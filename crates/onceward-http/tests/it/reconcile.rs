//! Unknown outcomes that are reconciled by asking the service.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use onceward::{OnUnknown, Policy};
use onceward_http::{Reconcile, Reconciled, Route, UnknownRequest};
use tokio::sync::Semaphore;

use crate::stage::{Answer, Stage, until};

/// A hook with a chosen answer, which it gives when it is allowed to.
#[derive(Clone)]
struct Oracle {
    word: Arc<Mutex<Reconciled>>,
    let_speak: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
}

impl Oracle {
    fn new(word: Reconciled) -> Self {
        Self {
            word: Arc::new(Mutex::new(word)),
            let_speak: Arc::new(Semaphore::new(0)),
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Reconcile for Oracle {
    fn reconcile(&self, unknown: UnknownRequest) -> Pin<Box<dyn Future<Output = Reconciled> + Send + '_>> {
        assert_eq!((unknown.id.key(), unknown.request.uri.path()), ("k", "/charges"));
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            self.let_speak.acquire().await.unwrap().forget();
            self.word.lock().unwrap().clone()
        })
    }
}

/// A stage on which the outcome of the first charge is unknown.
async fn with_unknown_outcome(oracle: &Oracle, body: &str) -> Stage {
    // The policy alone would run it again; what is reconciled is held.
    let policy = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap();
    let route = Route::builder().with_reconcile(oracle.clone()).with_policy(policy);
    // Before this is over, "it did not happen" is not believed.
    let route = route.with_late_effect_max(Duration::from_millis(20));
    let stage = Stage::start(route.build().unwrap()).await;
    assert_eq!(stage.post("k", body).await.status, 504);
    stage
}

/// Asks until the answer is another than that the outcome is unknown.
async fn ask_until_known(stage: &Stage, body: &str) -> Answer {
    let asking = async {
        loop {
            let answer = stage.post("k", body).await;
            if answer.status != 409 {
                return answer;
            }
            assert_eq!(answer.problem(), "outcome-unknown");
            assert_eq!(answer.field("retry-after"), Some("1"));
            assert!(answer.body.contains("\"retryable\":true"), "{}", answer.body);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("the outcome stayed unknown")
}

#[tokio::test]
async fn an_effect_that_happened_becomes_the_answer() {
    let found =
        Response::builder().status(201).header("x-found", "yes").body(Bytes::from("charged")).unwrap();
    let oracle = Oracle::new(Reconciled::Happened(found));
    let stage = with_unknown_outcome(&oracle, "\"unanswered\"").await;
    // While it is being reconciled, the hook is not asked again.
    for _ in 0..5 {
        assert_eq!(stage.post("k", "\"unanswered\"").await.status, 409);
    }
    until("the hook was not asked", || oracle.asked() > 0).await;
    assert_eq!(oracle.asked(), 1);
    oracle.let_speak.add_permits(1);
    let answer = ask_until_known(&stage, "\"unanswered\"").await;
    assert_eq!((answer.status, answer.body.as_str()), (201, "charged"));
    assert_eq!((answer.field("x-found"), answer.field("idempotent-replayed")), (Some("yes"), Some("true")));
    assert_eq!((oracle.asked(), stage.charges()), (1, 1));
    assert_eq!(stage.meter("reconciles", None), 1);
}

#[tokio::test]
async fn an_effect_that_did_not_happen_runs_again() {
    let oracle = Oracle::new(Reconciled::DidNotHappen);
    oracle.let_speak.add_permits(1_000);
    let stage = with_unknown_outcome(&oracle, "\"unanswered\"").await;
    // The outcome of the second run is unknown too: it is a run of its own.
    assert_eq!(ask_until_known(&stage, "\"unanswered\"").await.status, 504);
    assert_eq!(stage.charges(), 2);
}

#[tokio::test]
async fn nothing_changes_while_the_hook_cannot_tell() {
    let oracle = Oracle::new(Reconciled::NotYet);
    oracle.let_speak.add_permits(1_000);
    let stage = with_unknown_outcome(&oracle, "\"unanswered\"").await;
    for (asked, word) in
        [Reconciled::NotYet, Reconciled::Failed("down".into()), Reconciled::NotYet].into_iter().enumerate()
    {
        *oracle.word.lock().unwrap() = word;
        let again = async {
            while oracle.asked() <= asked {
                assert_eq!(stage.post("k", "\"unanswered\"").await.problem(), "outcome-unknown");
            }
        };
        tokio::time::timeout(Duration::from_secs(20), again).await.expect("the hook was not asked again");
    }
    assert_eq!(stage.charges(), 1);
}

/// Another request under the key learns nothing from the hook, and does not set it going.
#[tokio::test]
async fn another_request_under_the_key_does_not_ask() {
    let oracle = Oracle::new(Reconciled::DidNotHappen);
    let stage = with_unknown_outcome(&oracle, "\"unanswered\"").await;
    assert_eq!(stage.post("k", "\"other\"").await.problem(), "key-reused");
    assert_eq!(oracle.asked(), 0);
}
