//! Tests with a server that hangs, dies, or holds locks of another client, on every engine that has a server.

#![cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    allow(dead_code, reason = "SQLite has no server to be in trouble")
)]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Applied, Error, ErrorKind, Seen, State, Store, Swap, Swapped};
use onceward_stores::sql::Options;

use crate::support::{id, put};

/// What a server can be put through.
pub(crate) trait Server: Sized + Send + Sync + 'static {
    /// Another program, with a transaction that it does not end.
    type Other: Send;

    fn start() -> Option<Self>;
    fn kill(&mut self);
    fn up(&mut self);
    fn freeze(&self);
    fn thaw(&self);
    fn open(&self, options: Options) -> impl Future<Output = Arc<dyn Store>> + Send;
    /// Another program writes the row of a key, and keeps its transaction open.
    fn occupy(&self, key: u32) -> impl Future<Output = Self::Other> + Send;
    /// Whether a statement waits for a row that it has written, and may still be committed.
    fn is_waited_for(other: &mut Self::Other) -> impl Future<Output = bool> + Send;
    /// It rolls back.
    fn leave(other: Self::Other) -> impl Future<Output = ()> + Send;
}

/// A store that must not open, what kind of refusal it is, and what it must say. Nothing is changed by it.
pub(crate) fn refused<S>(opened: Result<S, Error>, kind: ErrorKind, part: &str) {
    let Err(error) = opened else { panic!("it opened, expected was: {part}") };
    assert_eq!((error.kind(), error.applied()), (kind, Applied::No), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

pub(crate) async fn everything<S: Server>() {
    let Some(mut server) = S::start() else { return };
    hangs(&server).await;
    is_in_the_way(&server).await;
    dies(&mut server).await;
}

fn claims(keys: std::ops::RangeInclusive<u32>) -> Vec<Swap> {
    keys.map(|key| put(id(key), Seen::Absent, State::Held, Some(30))).collect()
}

/// A server that hangs must become an error that says what is not known, and the store must come back.
async fn hangs<S: Server>(server: &S) {
    let connections = 2;
    let options =
        Options::default().with_call_timeout(Duration::from_millis(500)).with_connections(connections);
    let store = server.open(options).await;
    let claim = claims(1..=1);
    store.swap(&claims(2..=2)).await.unwrap();
    server.freeze();
    let given_up = store.swap(&claim).await.unwrap_err();
    assert_eq!(given_up.kind(), ErrorKind::Unavailable, "{given_up}");
    // More calls than there are connections: no connection may be lost.
    for _ in 0..connections * 2 {
        let error = store.load(&[id(1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    server.thaw();
    let mut may_be_applied = given_up.applied() == Applied::Maybe;
    let claimed = loop {
        match store.swap(&claim).await {
            Ok(swapped) => break swapped,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                may_be_applied |= error.applied() == Applied::Maybe;
            }
        }
    };
    // This claim or the one that timed out: one of them is there.
    let there = store.load(&[id(1)]).await.unwrap().remove(0).unwrap().expect("somebody claimed it");
    match &claimed[0] {
        Swapped::Won(version) => assert_eq!(there.version, *version),
        Swapped::Lost(found) => {
            assert_eq!(found.as_ref().unwrap().version, there.version);
            assert!(
                may_be_applied,
                "only this test claims it, and the store said that it did not: {given_up}"
            );
        }
        Swapped::Failed(error) => panic!("{error}"),
    }
}

/// A batch that is stuck halfway is given up as a whole: nothing of it comes later, and all of it can
/// be had again.
async fn is_in_the_way<S: Server>(server: &S) {
    let options = Options::default().with_call_timeout(Duration::from_millis(800));
    let store = server.open(options).await;
    let mut other = server.occupy(12).await;
    let error = store.swap(&claims(11..=13)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // The server's own time limit begins when the statement arrives, so that it may end a moment after the store's. Where a
    // batch is one statement, it may be applied until then, which the error says.
    while S::is_waited_for(&mut other).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A swap of other rows is not delayed.
    assert!(matches!(store.swap(&claims(14..=14)).await.unwrap()[0], Swapped::Won(_)));
    S::leave(other).await;
    let ids: Vec<_> = (11..=13).map(id).collect();
    assert!(store.load(&ids).await.unwrap().into_iter().all(|found| found.unwrap().is_none()));
    let mut may_be_applied = false;
    let again = loop {
        match store.swap(&claims(11..=13)).await {
            Ok(swapped) => break swapped,
            // The server may still be busy with the call that timed out.
            Err(error) => may_be_applied |= error.applied() == Applied::Maybe,
        }
    };
    assert!(may_be_applied || again.iter().all(|swapped| matches!(swapped, Swapped::Won(_))), "{again:?}");
    assert!(store.load(&ids).await.unwrap().into_iter().all(|found| found.unwrap().is_some()));
}

/// What was answered before the server died is there afterwards, and everything else can be had again.
async fn dies<S: Server>(server: &mut S) {
    let store = server.open(Options::default()).await;
    for round in 0..3_u64 {
        let tasks: Vec<_> = (0..8_u64)
            .map(|task| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let mut won = Vec::new();
                    for number in 0..100_000_u64 {
                        let id = id(format!("{round}/{task}/{number}"));
                        match store.swap(&[put(id.clone(), Seen::Absent, State::Done, None)]).await {
                            Ok(swapped) => match &swapped[0] {
                                Swapped::Won(version) => won.push((id, *version)),
                                Swapped::Lost(_) => panic!("nobody else claims this"),
                                Swapped::Failed(_) => break,
                            },
                            Err(_) => break,
                        }
                    }
                    won
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
        let mut won = Vec::new();
        for task in tasks {
            won.extend(task.await.unwrap());
        }
        server.up();
        assert!(!won.is_empty());
        for (id, version) in won {
            let found = store.load(&[id]).await.unwrap().remove(0).unwrap();
            assert_eq!(found.map(|found| found.version), Some(version));
        }
    }
}
