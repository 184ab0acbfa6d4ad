//! Checks of dropped futures: the swap was applied or was not, and the store stays usable.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use onceward::{Found, Id, Record, Seen, Swap};

use super::trial::{Answered, Checked, Trial, Wrong, creation, ensure, held, id, same, sorted};

/// How many times a future is polled before it is dropped, at most.
const POLLS_MAX: usize = 12;

pub(super) async fn a_dropped_claim_happened_or_not(trial: Trial) -> Checked {
    for polls in 0..POLLS_MAX {
        let id = id(polls);
        let dropped = held("dropped");
        drop_after(polls, trial.store.swap(&[creation(&id, dropped.clone())])).await;
        let before = trial.load_one(&id).await?;
        if let Some(found) = &before {
            same(&id, found, found.version, &dropped)?;
        }
        settle(&trial, &id, before, &dropped).await?;
    }
    Ok(())
}

/// The engine rests on this where it leaves the batches to the store.
pub(super) async fn a_dropped_claim_goes_on_where_the_store_batches(trial: Trial) -> Checked {
    if !trial.caps.hints.batches_internally {
        return Ok(());
    }
    for polls in 1..POLLS_MAX {
        let id = id(polls);
        drop_after(polls, trial.store.swap(&[creation(&id, held("dropped"))])).await;
        // Behind it in the store's own order, so it need not be waited for by the clock.
        let found = trial.lose(&id, Seen::Absent, Some(held("late"))).await?;
        ensure!(found.is_some(), "{id:?}: lost to nothing");
    }
    Ok(())
}

pub(super) async fn a_dropped_write_happened_or_not(trial: Trial) -> Checked {
    for polls in 0..POLLS_MAX {
        let id = id(polls);
        let (first, dropped) = (held("first"), held("dropped"));
        let version = trial.create(&id, first.clone()).await?;
        let swap = Swap { id: id.clone(), seen: Seen::Version(version), new: Some(dropped.clone()) };
        drop_after(polls, trial.store.swap(&[swap])).await;
        let found = trial.find(&id).await?;
        let record = if found.version == version { &first } else { &dropped };
        same(&id, &found, found.version, record)?;
        settle(&trial, &id, Some(found), &dropped).await?;
    }
    Ok(())
}

pub(super) async fn a_dropped_batch_wedges_nothing(trial: Trial) -> Checked {
    for round in 0..POLLS_MAX {
        let ids: Vec<Id> = (0..20).map(|number| id(round * 100 + number)).collect();
        let batch = sorted(ids.iter().map(|id| creation(id, held("dropped"))).collect());
        drop_after(round, trial.store.swap(&batch)).await;
        drop_after(round, trial.store.load(&ids)).await;
        let answers = trial.swap(&sorted(ids.iter().map(|id| creation(id, held("next"))).collect())).await?;
        for (id, answer) in ids.iter().zip(answers) {
            match answer {
                Answered::Won(version) => drop(trial.find_as(id, version, &held("next")).await?),
                Answered::Lost(Some(found)) => same(id, &found, found.version, &held("dropped"))?,
                Answered::Lost(None) => ensure!(false, "{id:?}: lost to nothing"),
            }
        }
    }
    Ok(())
}

/// Writes over what was seen. The dropped write may still have been under way: then it wins this once,
/// and the next attempt must succeed, after which it can never come back.
async fn settle(trial: &Trial, id: &Id, seen: Option<Found>, dropped: &Record) -> Checked {
    let last = held("last");
    let mut seen = seen.map_or(Seen::Absent, |found| Seen::Version(found.version));
    for _ in 0..2 {
        match trial.swap_one(id, seen, Some(last.clone())).await? {
            Answered::Won(version) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                trial.find_as(id, version, &last).await?;
                return Ok(());
            }
            Answered::Lost(Some(found)) => {
                same(id, &found, found.version, dropped)?;
                seen = Seen::Version(found.version);
            }
            Answered::Lost(None) => seen = Seen::Absent,
        }
    }
    Err(Wrong(format!("{id:?}: a dropped write won twice")))
}

/// Polls a future up to `polls` times, each time it asks for it, and then drops it.
pub(super) async fn drop_after<T>(polls: usize, future: impl Future<Output = T>) {
    if polls == 0 {
        return;
    }
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if left > 0 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
}
