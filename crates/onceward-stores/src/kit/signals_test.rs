//! Tests of signals: they arrive, are bounded, and cost nothing without watchers.

use std::task::Context;

use super::*;

fn id(number: usize) -> Id {
    Id::new("s", "o", &number.to_string()).unwrap()
}

fn heard(watch: &mut Watch) -> Poll<Option<Id>> {
    watch.changed().as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn every_watcher_learns_of_every_change() {
    let broadcaster = Broadcaster::default();
    let (mut one, mut two) = (broadcaster.watch(), broadcaster.watch());
    broadcaster.announce([id(1), id(2)].iter());
    for watch in [&mut one, &mut two] {
        assert_eq!(heard(watch), Poll::Ready(Some(id(1))));
        assert_eq!(heard(watch), Poll::Ready(Some(id(2))));
        assert_eq!(heard(watch), Poll::Pending);
    }
}

#[test]
fn who_does_not_keep_up_learns_that_there_was_something() {
    let broadcaster = Broadcaster::default();
    let mut watch = broadcaster.watch();
    for number in 0..WAITING_MAX * 10 {
        broadcaster.announce(std::iter::once(&id(number)));
    }
    assert_eq!(heard(&mut watch), Poll::Ready(None));
    assert_eq!(heard(&mut watch), Poll::Pending);
    broadcaster.announce(std::iter::once(&id(7)));
    assert_eq!(heard(&mut watch), Poll::Ready(Some(id(7))), "and goes on as before");
}

#[test]
fn a_watcher_that_left_is_forgotten() {
    let broadcaster = Broadcaster::default();
    assert!(!broadcaster.is_watched());
    drop(broadcaster.watch());
    assert!(broadcaster.is_watched(), "not noticed yet");
    broadcaster.announce(std::iter::once(&id(1)));
    assert!(!broadcaster.is_watched());
}

#[tokio::test]
async fn a_waiting_watcher_is_woken() {
    let broadcaster = Arc::new(Broadcaster::default());
    let mut watch = broadcaster.watch();
    let announcing = tokio::spawn(async move { broadcaster.announce(std::iter::once(&id(3))) });
    assert_eq!(watch.changed().await, Some(id(3)));
    announcing.await.unwrap();
}
