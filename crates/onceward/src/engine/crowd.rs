//! A few futures side by side, driven by whoever waits beside them: no task is spawned, and dropping the
//! crowd drops them all.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

pub(crate) struct Crowd<'a, T> {
    under_way: Vec<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    ready: Vec<T>,
}

impl<'a, T> Crowd<'a, T> {
    pub(crate) fn new() -> Self {
        Self { under_way: Vec::new(), ready: Vec::new() }
    }

    pub(crate) fn add(&mut self, work: impl Future<Output = T> + Send + 'a) {
        self.under_way.push(Box::pin(work));
    }

    /// What has become ready since this was last asked.
    pub(crate) fn ready(&mut self) -> Vec<T> {
        std::mem::take(&mut self.ready)
    }

    /// Waits for something else; the crowd goes on meanwhile.
    pub(crate) async fn beside<F: Future>(&mut self, other: F) -> F::Output {
        let mut other = pin!(other);
        poll_fn(|cx| {
            self.poll(cx);
            other.as_mut().poll(cx)
        })
        .await
    }

    /// Goes on until fewer than so many are under way.
    pub(crate) async fn until_below(&mut self, under_way: usize) {
        poll_fn(|cx| {
            self.poll(cx);
            if self.under_way.len() < under_way { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// A crowd is small, so each wake looks at all.
    fn poll(&mut self, cx: &mut Context<'_>) {
        let ready = &mut self.ready;
        self.under_way.retain_mut(|work| match work.as_mut().poll(cx) {
            Poll::Ready(output) => {
                ready.push(output);
                false
            }
            Poll::Pending => true,
        });
    }
}
