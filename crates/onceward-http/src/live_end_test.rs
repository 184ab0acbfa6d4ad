//! Tests of how long a run waits for its client, in simulated time.

use http_body::Body;
use http_body_util::{BodyExt, Empty};

use super::*;
use crate::body::ResponseBody;

const PIECES: usize = 1_000;

/// Sends a body to a client that takes one piece after each pause. Returns when it was all sent or the client was cut off,
/// whether it was cut off, and what the client has got.
async fn send(piece: usize, pause: Duration) -> (Duration, bool, usize, bool) {
    let metrics = Arc::new(Metrics::new());
    let (sender, body) = ResponseBody::<Empty<Bytes>>::live();
    let mut end = LiveEnd::new(sender, None, Duration::from_secs(30), metrics.clone());
    let client = tokio::spawn(async move {
        let (mut body, mut got) = (std::pin::pin!(body), 0);
        loop {
            tokio::time::sleep(pause).await;
            match body.frame().await {
                Some(Ok(frame)) => got += frame.into_data().map_or(0, |data| data.len()),
                Some(Err(_)) => return (got, false),
                None => return (got, body.is_end_stream()),
            }
        }
    });
    let began = Instant::now();
    for _ in 0..PIECES {
        end.pass(Bytes::from(vec![b'x'; piece])).await;
    }
    end.send().await;
    let took = began.elapsed();
    let cut_off = metrics.each().any(|(name, _, count)| name == "slow_clients_cut_off" && count == 1);
    let (got, whole) = client.await.unwrap();
    (took, cut_off, got, whole)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_up_gets_all_of_it_however_long_it_takes() {
    // 64 KiB a second, for a quarter of an hour.
    let (took, cut_off, got, whole) = send(64 << 10, Duration::from_secs(1)).await;
    assert_eq!((cut_off, got, whole), (false, PIECES * (64 << 10), true));
    assert!(took > Duration::from_mins(15), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_pauses_is_cut_off() {
    let (took, cut_off, got, whole) = send(64 << 10, Duration::from_secs(31)).await;
    assert!(cut_off && !whole && got < PIECES * (64 << 10));
    assert!(took <= Duration::from_secs(31), "{took:?}");
}

/// It never pauses for the whole time that one piece may wait, and would hold the run for hours.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_but_steadily_is_cut_off() {
    let (took, cut_off, got, whole) = send(1 << 10, Duration::from_secs(10)).await;
    assert!(cut_off && !whole && got < PIECES << 10);
    assert!(took < Duration::from_mins(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_service_costs_the_client_nothing() {
    let metrics = Arc::new(Metrics::new());
    let (sender, body) = ResponseBody::<Empty<Bytes>>::live();
    let mut end = LiveEnd::new(sender, Some(3), Duration::from_millis(1), metrics);
    let client = tokio::spawn(async move { body.collect().await.map(http_body_util::Collected::to_bytes) });
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_hours(1)).await;
        end.pass(Bytes::from_static(b"x")).await;
    }
    end.send().await;
    assert_eq!(client.await.unwrap().unwrap(), "xxx");
}
