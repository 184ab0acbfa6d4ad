//! A oneshot channel: sends one value from one task to another. It uses the engine's own lock, so that shuttle can
//! explore its schedules.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::sync::Mutex;

/// Makes the two ends.
pub(crate) fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
    (Sender(Some(slot.clone())), Receiver(slot))
}

struct Slot<T> {
    value: Option<Arrived<T>>,
    waker: Option<Waker>,
}

enum Arrived<T> {
    Value(T),
    /// The sender was dropped without sending.
    Nothing,
}

pub(crate) struct Sender<T>(Option<Arc<Mutex<Slot<T>>>>);

impl<T> Sender<T> {
    pub(crate) fn send(mut self, value: T) {
        self.arrive(Arrived::Value(value));
    }

    fn arrive(&mut self, value: Arrived<T>) {
        let Some(slot) = self.0.take() else { return };
        let waker = {
            let mut slot = slot.lock();
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.arrive(Arrived::Nothing);
    }
}

/// Ready with the value, or with `None` if the sender was dropped.
pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.lock();
        match slot.value.take() {
            Some(Arrived::Value(value)) => Poll::Ready(Some(value)),
            Some(Arrived::Nothing) => {
                // Stays, so that a second poll does not hang.
                slot.value = Some(Arrived::Nothing);
                Poll::Ready(None)
            }
            None => {
                if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    slot.waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}
