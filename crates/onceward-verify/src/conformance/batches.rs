//! Checks of batches: each swap is independent, and the answers are in the order of the batch.

use onceward::{Id, Seen, State, Swap};

use super::trial::{Answered, Checked, FAR, Trial, creation, ensure, held, id, record, same, sorted};

/// The largest batch that the engine sends.
const BATCH_MAX: usize = 1024;

pub(super) async fn empty_batch_is_answered(trial: Trial) -> Checked {
    trial.swap(&[]).await?;
    Ok(())
}

pub(super) async fn one_batch_has_winners_and_losers(trial: Trial) -> Checked {
    let there = held("there");
    let mut versions = Vec::new();
    for number in (0..60).step_by(2) {
        versions.push(trial.create(&id(number), there.clone()).await?);
    }
    // Every third kind in turn: create, replace, remove; on even ids there is a record, on odd ones none.
    let batch: Vec<Swap> = (0..60)
        .map(|number| {
            let seen = match number % 3 {
                0 => Seen::Absent,
                _ => Seen::Version(versions[number / 2]),
            };
            let new = (number % 3 != 2).then(|| record(State::Done, Some(FAR), number.to_string()));
            Swap { id: id(number), seen, new }
        })
        .collect();
    let answers = trial.swap(&batch).await?;
    for (number, (swap, answer)) in batch.iter().zip(&answers).enumerate() {
        let exists = number % 2 == 0;
        let must_win = exists != (swap.seen == Seen::Absent);
        match answer {
            Answered::Won(version) => {
                ensure!(must_win, "swap {number} of the batch won and must not");
                match &swap.new {
                    Some(new) => drop(trial.find_as(&swap.id, *version, new).await?),
                    None => {
                        ensure!(trial.load_one(&swap.id).await?.is_none(), "swap {number} removed nothing");
                    }
                }
            }
            Answered::Lost(found) => {
                ensure!(!must_win, "swap {number} of the batch lost to {found:?} and must not");
                ensure!(found.is_some() == exists, "swap {number}: the loser learned {found:?}");
                if let Some(found) = found {
                    same(&swap.id, found, versions[number / 2], &there)?;
                }
                ensure!(trial.load_one(&swap.id).await?.is_some() == exists, "swap {number} lost and wrote");
            }
        }
    }
    Ok(())
}

pub(super) async fn largest_batch_is_answered_in_order(trial: Trial) -> Checked {
    let ids: Vec<Id> = (0..BATCH_MAX).map(id).collect();
    // Some places are taken beforehand, so that an answer in the wrong place shows.
    for taken in ids.iter().step_by(97) {
        trial.create(taken, held("taken")).await?;
    }
    let batch =
        sorted(ids.iter().enumerate().map(|(number, id)| creation(id, held(number.to_string()))).collect());
    let answers = trial.swap(&batch).await?;
    let found = trial.load(&ids).await?;
    for (number, (answer, found)) in answers.iter().zip(found).enumerate() {
        ensure!(found.is_some(), "record {number} of the batch is missing");
        let found = found.expect("looked at above");
        match answer {
            Answered::Won(version) => {
                ensure!(number % 97 != 0, "swap {number} won a place that was taken");
                same(&ids[number], &found, *version, &held(number.to_string()))?;
            }
            Answered::Lost(told) => {
                ensure!(number % 97 == 0, "swap {number} lost a place that was free");
                let told = told.as_ref().map(|told| &told.bytes);
                ensure!(told == Some(&found.bytes), "swap {number} was told {told:?}");
            }
        }
    }
    Ok(())
}

/// Batches under way at the same time, with ids in common, neither deadlock nor mix up their answers.
pub(super) async fn batches_overlap(trial: Trial) -> Checked {
    const BATCHES: usize = 16;
    const SPAN: usize = 40;
    let mut tasks = tokio::task::JoinSet::new();
    for batch in 0..BATCHES {
        let trial = trial.clone();
        tasks.spawn(async move {
            let ids = (batch * SPAN / 2..).take(SPAN);
            let swaps =
                sorted(ids.map(|number| creation(&id(number), held(format!("{batch}/{number}")))).collect());
            let answers = trial.swap(&swaps).await?;
            Ok(swaps.into_iter().zip(answers).collect::<Vec<_>>())
        });
    }
    let mut won = std::collections::BTreeMap::new();
    let mut lost = Vec::new();
    while let Some(answers) = tasks.join_next().await {
        let answers: Checked<Vec<(Swap, Answered)>> = answers.expect("a batch does not panic");
        for (swap, answer) in answers? {
            match answer {
                Answered::Won(version) => {
                    let before = won.insert(swap.id.clone(), version);
                    ensure!(before.is_none(), "{:?}: two creations won", swap.id);
                    trial.find_as(&swap.id, version, &swap.new.expect("a creation")).await?;
                }
                Answered::Lost(found) => lost.push((swap.id, found)),
            }
        }
    }
    for (id, found) in lost {
        let told = found.map(|found| found.version);
        ensure!(told == won.get(&id).copied(), "{id:?}: a loser was told {told:?}, {:?} won", won.get(&id));
    }
    Ok(())
}
