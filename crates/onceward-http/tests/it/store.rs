//! What a client is told when the store is the trouble: down, too slow, or past a receipt's retention.

use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Caps, Error, ErrorKind, Found, Fut, Id, Limits, OnExpired, Page, Policy, Retention, Scan, Store, Swap,
    Swapped,
};
use onceward_http::Route;
use onceward_stores::MemoryStore;
use tokio::sync::watch;

use crate::stage::Stage;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Down,
    Stuck,
}

/// A store whose health the test decides.
struct Ailing {
    inner: MemoryStore,
    health: watch::Receiver<Health>,
}

impl Store for Ailing {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(async move {
            let mut health = self.health.clone();
            let now = *health.wait_for(|health| *health != Health::Stuck).await.unwrap();
            match now {
                Health::Down => Err(Error::new(ErrorKind::Unavailable, "the store is down")),
                _ => self.inner.swap(batch).await,
            }
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        self.inner.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        self.inner.scan(query)
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

async fn ailing(limits: Limits) -> (Stage, watch::Sender<Health>) {
    let (health, receiver) = watch::channel(Health::Well);
    let store = Arc::new(Ailing { inner: MemoryStore::new(), health: receiver });
    (Stage::over(store, limits, Route::default()).await, health)
}

#[tokio::test]
async fn a_store_that_is_down_is_told_and_nothing_happens() {
    let (stage, health) = ailing(Limits::default()).await;
    health.send_replace(Health::Down);
    let refused = stage.post("k", "{}").await;
    assert_eq!((refused.status, refused.problem()), (503, "store-unavailable"));
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(refused.body.contains("\"retryable\":true"), "{}", refused.body);
    assert_eq!(stage.charges(), 0);
    health.send_replace(Health::Well);
    assert_eq!(stage.post("k", "{}").await.status, 201, "the same request, sent again");
}

#[tokio::test]
async fn claims_beyond_the_queue_are_told_to_come_back() {
    let (stage, health) = ailing(Limits { queue_claims_max: 1, ..Limits::default() }).await;
    health.send_replace(Health::Stuck);
    let stage = Arc::new(stage);
    let mut posts = tokio::task::JoinSet::new();
    for at in 0..5 {
        let stage = stage.clone();
        posts.spawn(async move { stage.post(&format!("k{at}"), "{}").await });
    }
    // One is under way, one waits; the other three are answered while the store is stuck.
    for _ in 0..3 {
        let refused = posts.join_next().await.unwrap().unwrap();
        assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
    }
    health.send_replace(Health::Well);
    for answer in posts.join_all().await {
        assert_eq!(answer.status, 201);
    }
    assert_eq!(stage.charges(), 2);
}

#[tokio::test]
async fn a_late_key_is_refused_where_the_route_says_so() {
    let policy = Policy::http().keep(Retention::For(Duration::from_millis(200))).unwrap();
    let policy = policy.on_expired(OnExpired::Refuse(Retention::Forever)).unwrap();
    let stage = Stage::start(Route::default().policy(policy)).await;
    assert_eq!(stage.post("k", "{}").await.status, 201);
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let answer = stage.post("k", "{}").await;
            if answer.status != 201 {
                return answer;
            }
        }
    });
    let refused = refused.await.expect("the retention never ended");
    assert_eq!((refused.status, refused.problem()), (410, "key-expired"));
    assert_eq!(stage.charges(), 1);
}
