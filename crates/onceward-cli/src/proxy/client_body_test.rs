use super::*;

async fn too_slow_after(limit: &mut SlowSenderLimit) -> u64 {
    let began = Instant::now();
    std::future::poll_fn(|cx| limit.poll_too_slow(cx)).await;
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_early_buys_no_long_silence() {
    let mut limit = SlowSenderLimit::new(Duration::from_secs(10));
    limit.received(1 << 20);
    assert_eq!(too_slow_after(&mut limit).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_client_above_the_minimum_rate_is_never_too_slow() {
    let mut limit = SlowSenderLimit::new(Duration::from_secs(10));
    for _ in 0..100 {
        limit.received(9 * 256);
        let pause = tokio::time::timeout(Duration::from_secs(9), too_slow_after(&mut limit)).await;
        assert!(pause.is_err(), "{pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_below_the_minimum_rate_is_too_slow_in_the_end() {
    let mut limit = SlowSenderLimit::new(Duration::from_secs(10));
    let began = Instant::now();
    for _ in 0..100 {
        limit.received(100);
        let pause = tokio::time::timeout(Duration::from_secs(1), too_slow_after(&mut limit)).await;
        if pause.is_ok() {
            assert!(began.elapsed() < Duration::from_secs(20));
            return;
        }
    }
    panic!("a hundred bytes a second never ended");
}
