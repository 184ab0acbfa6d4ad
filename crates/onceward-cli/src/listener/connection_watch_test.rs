use super::*;

const TIMEOUTS: ConnectionTimeouts = ConnectionTimeouts {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(75),
    write: Duration::from_secs(30),
};

fn watch() -> Arc<ConnectionWatch> {
    Arc::new(ConnectionWatch::new(TIMEOUTS))
}

/// Why the connection is closed, and after how many seconds.
async fn closed(watch: &ConnectionWatch) -> (Closed, u64) {
    let began = Instant::now();
    let closed = watch.overdue().await;
    (closed, began.elapsed().as_secs())
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_has_the_time_of_a_head() {
    let silent = watch();
    assert_eq!(closed(&silent).await, (Closed::SlowHead, 10));
    let slow = watch();
    after(9).await;
    slow.received();
    assert_eq!(closed(&slow).await, (Closed::SlowHead, 1), "a byte does not prolong it");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_has_its_own_time_and_a_begun_head_a_shorter_one() {
    let watch = watch();
    drop(watch.begin_request(false));
    assert_eq!(closed(&watch).await, (Closed::Idle, 75));
    drop(watch.begin_request(false));
    after(20).await;
    watch.received();
    assert_eq!(closed(&watch).await, (Closed::SlowHead, 10));
    drop(watch.begin_request(true));
    watch.received();
    assert_eq!(closed(&watch).await, (Closed::Idle, 75), "frames of HTTP/2 begin no head");
}

#[tokio::test(start_paused = true)]
async fn a_request_in_progress_has_no_deadline_here() {
    let watch = watch();
    let request = watch.begin_request(false);
    let waited = tokio::time::timeout(Duration::from_secs(3600), watch.overdue()).await;
    assert!(waited.is_err(), "{waited:?}");
    drop(request);
    assert_eq!(closed(&watch).await, (Closed::Idle, 75));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_closed_and_one_that_reads_slowly_is_not() {
    let watch = watch();
    let _request = watch.begin_request(false);
    watch.write_blocked();
    assert_eq!(closed(&watch).await, (Closed::SlowReader, 30));
    for _ in 0..100 {
        watch.wrote(300 * 20);
        watch.write_blocked();
        after(20).await;
    }
    watch.wrote(300 * 20);
    // Less than the minimum rate uses up the time that is left.
    for _ in 0..100 {
        watch.write_blocked();
        if tokio::time::timeout(Duration::from_secs(10), watch.overdue()).await.is_ok() {
            return;
        }
        watch.wrote(20);
    }
    panic!("a client that reads two bytes a second was never closed");
}

#[tokio::test(start_paused = true)]
async fn an_evicted_connection_is_closed_at_once() {
    let watch = watch();
    assert_eq!(watch.idle(), Some(NeverUsed(true)));
    watch.evict();
    assert_eq!(closed(&watch).await, (Closed::Evicted, 0));
    let request = watch.begin_request(false);
    assert_eq!(watch.idle(), None);
    drop(request);
    assert_eq!(watch.idle(), Some(NeverUsed(false)));
}
