//! Waiting for one thing, but not for ever.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::world::World;

/// Waits for `future` at most `at_most`; `None` if the time ran out. The future is always asked
/// first, so an answer that is there wins over a deadline that has passed.
pub(crate) async fn within<F: Future>(world: &dyn World, at_most: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // The timer is made only when it is needed: most things that are waited for are there already.
    let mut sleep = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        let sleep = sleep.get_or_insert_with(|| world.sleep(at_most));
        sleep.as_mut().poll(cx).map(|()| None)
    })
    .await
}
