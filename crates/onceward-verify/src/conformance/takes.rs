//! Checks of takes: due records are handed out, what is chosen is written, and of several takers each record goes to
//! one. A store that takes nothing passes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Found, Id, Page, Seen, State, Swap};

use super::trial::{
    Answered, Checked, FAR, Trial, Wrong, creation, ensure, held, id, once_each, plausible, record, sorted,
};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// Waiting records that are due at once.
async fn waiting(trial: &Trial, numbers: std::ops::Range<usize>) -> Checked<Vec<Id>> {
    let ids: Vec<Id> = numbers.map(id).collect();
    let batch = ids.iter().map(|id| creation(id, record(State::Waiting, AT_ONCE, "waits")));
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    for id in &ids {
        trial.until_over(id).await?;
    }
    Ok(ids)
}

/// A claim of what was found.
fn claim((id, found): &(Id, Found)) -> Swap {
    Swap { id: id.clone(), seen: Seen::Version(found.version), new: Some(held("claimed")) }
}

/// What a take gave, and what became of the swaps that were made of it.
type Took = (Vec<(Id, Found)>, Vec<(Swap, Answered)>);

/// Takes waiting records and writes what is made of them. `None` if the store takes nothing.
async fn take(
    trial: &Trial,
    limit: usize,
    choose: impl FnOnce(&[(Id, Found)]) -> Vec<Swap> + Send,
) -> Checked<Option<Took>> {
    let given = Arc::new(Mutex::new(None));
    let keep = given.clone();
    let chosen = move |page: Page| {
        let batch = sorted(choose(&page.found));
        *keep.lock().expect("not poisoned") = Some((page, batch.clone()));
        batch
    };
    let Some(taking) = trial.store.take(State::Waiting, limit, Box::new(chosen)) else { return Ok(None) };
    let answers = taking.await?;
    let given = given.lock().expect("not poisoned").take();
    let Some((page, batch)) = given else {
        return Err(Wrong("a take was answered, and nobody was asked what to write".to_owned()));
    };
    ensure!(page.found.len() <= limit, "a take of at most {limit} gave {}", page.found.len());
    ensure!(page.unreadable.is_empty(), "a sound record cannot be read: {:?}", page.unreadable);
    let answers = plausible(&batch, answers)?;
    Ok(Some((page.found, batch.into_iter().zip(answers).collect())))
}

pub(super) async fn only_what_is_due_in_that_state(trial: Trial) -> Checked {
    let due = waiting(&trial, 0..20).await?;
    trial.create(&id(100), record(State::Waiting, Some(FAR), "later")).await?;
    trial.create(&id(101), record(State::Waiting, None, "never")).await?;
    trial.create(&id(102), record(State::Done, AT_ONCE, "done")).await?;
    trial.create(&id(103), record(State::Held, AT_ONCE, "lapsed")).await?;
    let Some((found, _)) = take(&trial, 100, |_| Vec::new()).await? else { return Ok(()) };
    once_each(&found, &due)?;
    for (id, found) in &found {
        let loaded = trial.find(id).await?;
        ensure!(
            (loaded.version, loaded.state, &loaded.bytes) == (found.version, found.state, &found.bytes),
            "{id:?}: taken {found:?}, loaded {loaded:?}; choosing nothing changes nothing"
        );
    }
    Ok(())
}

pub(super) async fn earliest_of_more_than_the_limit(trial: Trial) -> Checked {
    let first = waiting(&trial, 50..55).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    waiting(&trial, 0..5).await?;
    let Some((found, _)) = take(&trial, 5, |_| Vec::new()).await? else { return Ok(()) };
    once_each(&found, &first)
}

pub(super) async fn what_is_chosen_is_written(trial: Trial) -> Checked {
    waiting(&trial, 0..10).await?;
    let (replaced, removed, created) = (id(20), id(21), id(22));
    let seen = trial.create(&replaced, held("a run")).await?;
    let gone = trial.create(&removed, held("a run")).await?;
    let lost = trial.create(&id(23), held("a run")).await?;
    trial.put(&id(23), Seen::Version(lost), held("another")).await?;
    let done = record(State::Done, Some(FAR), "done");
    let others = [
        Swap { id: replaced.clone(), seen: Seen::Version(seen), new: Some(done.clone()) },
        Swap { id: removed.clone(), seen: Seen::Version(gone), new: None },
        creation(&created, done.clone()),
        Swap { id: id(23), seen: Seen::Version(lost), new: Some(done.clone()) },
    ];
    let choose = move |found: &[(Id, Found)]| found.iter().take(6).map(claim).chain(others).collect();
    let Some((_, answers)) = take(&trial, 10, choose).await? else { return Ok(()) };
    ensure!(answers.len() == 10, "ten swaps have {} answers", answers.len());
    for (swap, answer) in &answers {
        match answer {
            Answered::Lost(found) => {
                ensure!(swap.id == id(23), "{:?}: lost to {found:?}", swap.id);
                ensure!(found.as_ref().is_some_and(|found| found.bytes == "another"), "it is told {found:?}");
            }
            Answered::Won(_) if swap.id == id(23) => return Err(Wrong("an outdated version won".to_owned())),
            Answered::Won(version) => match &swap.new {
                Some(new) => drop(trial.find_as(&swap.id, *version, new).await?),
                None => ensure!(trial.load_one(&swap.id).await?.is_none(), "{:?}: was removed", swap.id),
            },
        }
    }
    let Some((left, _)) = take(&trial, 10, |_| Vec::new()).await? else { return Ok(()) };
    ensure!(left.len() == 4, "four of ten were left, {} are taken next", left.len());
    Ok(())
}

/// Nothing of what was claimed is handed out again, and a failure of the caller's afterwards changes nothing.
pub(super) async fn each_record_goes_to_one_taker(trial: Trial) -> Checked {
    const TAKERS: usize = 6;
    let ids = waiting(&trial, 0..300).await?;
    let takers = (0..TAKERS).map(|_| {
        let trial = trial.clone();
        tokio::spawn(async move {
            let mut won = Vec::new();
            let mut empty = 0;
            // Another taker may have all that is left locked at that moment.
            while empty < 20 {
                let claims = |found: &[(Id, Found)]| found.iter().map(claim).collect();
                let Some((found, answers)) = take(&trial, 7, claims).await? else { return Ok(None) };
                empty = if found.is_empty() { empty + 1 } else { 0 };
                let winners = answers.into_iter().filter(|(_, answer)| matches!(answer, Answered::Won(_)));
                won.extend(winners.map(|(swap, _)| swap.id));
            }
            Ok::<_, Wrong>(Some(won))
        })
    });
    let mut winners: BTreeMap<Id, usize> = BTreeMap::new();
    for taker in takers.collect::<Vec<_>>() {
        let won = taker.await.map_err(|error| Wrong(format!("a taker panicked: {error}")))??;
        let Some(won) = won else { return Ok(()) };
        for id in won {
            *winners.entry(id).or_default() += 1;
        }
    }
    for id in &ids {
        let times = winners.get(id).copied().unwrap_or_default();
        ensure!(times == 1, "{id:?} was won {times} times");
    }
    Ok(())
}

/// A take that is dropped at any point happened or not, and keeps nothing from others.
pub(super) async fn a_dropped_take_wedges_nothing(trial: Trial) -> Checked {
    let ids = waiting(&trial, 0..40).await?;
    for polls in 0..12 {
        let claims = |page: Page| sorted(page.found.iter().take(2).map(claim).collect());
        let Some(mut taking) = trial.store.take(State::Waiting, 5, Box::new(claims)) else { return Ok(()) };
        let mut left = polls;
        std::future::poll_fn(|cx| {
            if left == 0 || taking.as_mut().poll(cx).is_ready() {
                return std::task::Poll::Ready(());
            }
            left -= 1;
            std::task::Poll::Pending
        })
        .await;
        drop(taking);
    }
    let start = std::time::Instant::now();
    loop {
        let claims = |found: &[(Id, Found)]| found.iter().map(claim).collect();
        take(&trial, 50, claims).await?;
        let found = trial.load(&ids).await?;
        if found.iter().flatten().all(|found| found.state == State::Held) {
            return Ok(());
        }
        ensure!(start.elapsed() < super::trial::DEADLINE, "records stay locked by a take that was dropped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
