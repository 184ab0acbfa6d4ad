//! Stores that go by the `Date` field of answers, in a process that was paused: the same test for each of them.

use std::time::Duration;

use onceward::{Due, Error, Seen, State, Store, Swapped};

use crate::dated_proxy::{DatedProxy, NO_DATE};
use crate::support::{id, put};

/// Longer than any margin.
const LEASE_S: u64 = 30;

pub(crate) async fn a_claim_after_a_pause_has_its_whole_lease<S: Store>(
    service_port: u16,
    open_at: impl AsyncFn(u16) -> Result<S, Error>,
) {
    let proxy = DatedProxy::start(service_port, 0).await;
    let store = open_at(proxy.port).await.unwrap();
    // The service has counted an hour, and this process has not.
    proxy.set(3600);
    let batch = [
        put(id("claim"), Seen::Absent, State::Held, Some(LEASE_S)),
        put(id("done"), Seen::Absent, State::Done, Some(LEASE_S)),
        put(id("unknown"), Seen::Absent, State::Unknown, None),
    ];
    let swapped = store.swap(&batch).await.unwrap();
    let other = open_at(proxy.port).await.unwrap();
    let ids = batch.each_ref().map(|swap| swap.id.clone());
    let loaded = other.load(&ids).await.unwrap();
    for (swapped, loaded) in swapped.iter().zip(loaded) {
        let (Swapped::Won(version), Ok(Some(found))) = (swapped, loaded) else { panic!("{swapped:?}") };
        assert_eq!(*version, found.version);
        let least = Duration::from_secs(LEASE_S - 3);
        assert!(found.due == Due::Never || matches!(found.due, Due::In(left) if left > least), "{found:?}");
    }
    // Without a time in the answer nobody knows when a lease ends; what was written is found by a look.
    proxy.set(NO_DATE);
    let swapped = store.swap(&[put(id("dateless"), Seen::Absent, State::Held, Some(LEASE_S))]).await.unwrap();
    let [Swapped::Failed(error)] = &swapped[..] else { panic!("{swapped:?}") };
    assert_eq!(error.applied(), onceward::Applied::Maybe, "{error}");
    assert!(error.to_string().contains("Date"), "{error}");
    assert!(matches!(other.load(&[id("dateless")]).await.unwrap()[..], [Ok(Some(_))]));
}
