//! Generates load with callers in a closed loop: each makes its next call when the previous one is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

use crate::latency::Latency;
use crate::turns::Turn;

/// The runtime that both sides of a comparison run on.
pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// More memory than the receipts of a comparison in memory take.
const TOUCHED_BYTES: usize = 512 << 20;

/// Touches memory and gives it back. A virtual machine is given a page by its host when it is first touched, which
/// takes longer than everything else about a receipt in memory; that it has memory is taken for granted here. What
/// its own kernel does for a page stays part of the measurement.
pub fn touch_memory() {
    drop(std::hint::black_box(vec![1_u8; TOUCHED_BYTES]));
}

/// Calls per second of `count` concurrent callers, until `length` completes. Each caller has a number, makes at
/// least one call, and waits for the answer to its last call.
pub async fn callers<W>(
    count: usize,
    length: impl Future<Output = ()>,
    call: impl Fn(usize) -> W + Send + Sync + 'static,
) -> Turn
where
    W: Future<Output = ()> + Send + 'static,
{
    let (call, stop) = (Arc::new(call), Arc::new(AtomicBool::new(false)));
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..count {
        let (call, stop) = (call.clone(), stop.clone());
        tasks.spawn(async move {
            let mut samples = Vec::new();
            loop {
                let begin = Instant::now();
                call(caller).await;
                samples.push(begin.elapsed().as_secs_f32() * 1e6);
                if stop.load(Ordering::Relaxed) {
                    return samples;
                }
            }
        });
    }
    length.await;
    stop.store(true, Ordering::Relaxed);
    let samples = tasks.join_all().await.concat();
    let per_second = samples.len() as f64 / start.elapsed().as_secs_f64();
    Turn::with_latency(per_second, Latency::from_samples(samples))
}
