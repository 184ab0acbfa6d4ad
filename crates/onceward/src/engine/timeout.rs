//! Timeouts: waits for the first of two futures, or for one with a deadline.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::runtime::Runtime;
use crate::store::Watch;

/// Ready when the first of the two is.
pub(crate) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let ready = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The first of two answers.
pub(crate) enum First<A, B> {
    One(A),
    Other(B),
}

/// The answer of the first of the two that has one. If both have, it is that of `one`.
pub(crate) async fn first_of<A, B>(
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> First<A, B> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(First::One(answer)),
        Poll::Pending => other.as_mut().poll(cx).map(First::Other),
    })
    .await
}

/// Shortest time between two looks that signals of a store cause, however busy it is.
const SIGNAL_INTERVAL_MIN: Duration = Duration::from_millis(2);

/// Ready at the next signal of the store; never, if it has none.
pub(crate) async fn signalled(runtime: &dyn Runtime, watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => {
            runtime.sleep(SIGNAL_INTERVAL_MIN).await;
            drop(watch.changed().await);
        }
        None => std::future::pending().await,
    }
}

/// Waits for `future` at most `at_most`; `None` if the time ran out. The future is always asked
/// first, so an answer that is there wins over a deadline that has passed.
pub(crate) async fn within<F: Future>(
    runtime: &dyn Runtime,
    at_most: Duration,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    // The timer is made only when it is needed: most things that are waited for are there already.
    let mut sleep = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let sleep = sleep.get_or_insert_with(|| runtime.sleep(at_most));
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}
