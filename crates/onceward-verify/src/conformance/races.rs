//! Checks of races between real threads: of the writers that saw the same version, exactly one wins, and no update
//! is lost.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use bytes::Bytes;
use onceward::{Id, Record, Seen, Swap, Version};

use super::trial::{Answered, Checked, Trial, Wrong, creation, ensure, held, id};

const THREADS: usize = 8;

pub(super) async fn one_claim_wins(trial: Trial) -> Checked {
    const IDS: usize = 64;
    let claims = threads(&trial, |trial, thread| async move {
        let mut answers = Vec::new();
        // All in the same order: the threads stay neck and neck, and meet at every id.
        for number in 0..IDS {
            let answer = trial.swap_one(&id(number), Seen::Absent, Some(held(thread.to_string()))).await?;
            answers.push((number, answer));
        }
        Ok(answers)
    })
    .await?;
    let mut winners: BTreeMap<usize, (usize, Version)> = BTreeMap::new();
    for (thread, answers) in claims.iter().enumerate() {
        for (number, answer) in answers {
            if let Answered::Won(version) = answer {
                let other = winners.insert(*number, (thread, *version));
                ensure!(other.is_none(), "two threads won the claim of one id");
            }
        }
    }
    ensure!(winners.len() == IDS, "{} of {IDS} ids were claimed", winners.len());
    for (number, answer) in claims.into_iter().flatten() {
        let (thread, version) = winners[&number];
        if let Answered::Lost(found) = answer {
            let told = found.map(|found| (found.version, found.bytes));
            ensure!(
                told == Some((version, Bytes::from(thread.to_string()))),
                "a loser was told {told:?}, thread {thread} won with {version:?}"
            );
        }
    }
    Ok(())
}

/// Every version is replaced by exactly one successor.
pub(super) async fn one_step_wins(trial: Trial) -> Checked {
    const STEPS: u64 = 60;
    /// Even the unluckiest thread needs no more: each time it loses, somebody else has won a step.
    const ATTEMPTS_MAX: u64 = STEPS * 4;
    let id = id(1);
    trial.create(&id, counter(0)).await?;
    let wins = threads(&trial, |trial, _| {
        let id = id.clone();
        async move {
            let mut wins = Vec::new();
            let mut found = trial.find(&id).await?;
            let mut attempts = 0;
            while count(&found.bytes)? < STEPS {
                attempts += 1;
                ensure!(
                    attempts < ATTEMPTS_MAX,
                    "still at step {} after {ATTEMPTS_MAX} tries",
                    count(&found.bytes)?
                );
                let next = count(&found.bytes)? + 1;
                match trial.swap_one(&id, Seen::Version(found.version), Some(counter(next))).await? {
                    Answered::Won(version) => {
                        wins.push((next, version));
                        found = trial.find(&id).await?;
                    }
                    Answered::Lost(Some(there)) => found = there,
                    Answered::Lost(None) => ensure!(false, "the record vanished"),
                }
            }
            Ok(wins)
        }
    })
    .await?;
    let mut steps: Vec<(u64, Version)> = wins.into_iter().flatten().collect();
    steps.sort_unstable();
    let counts: Vec<u64> = steps.iter().map(|(count, _)| *count).collect();
    ensure!(counts == (1..=STEPS).collect::<Vec<_>>(), "steps won: {counts:?}");
    for pair in steps.windows(2) {
        ensure!(
            pair[0].1 < pair[1].1,
            "step {} has {:?}, the one after {:?}",
            pair[0].0,
            pair[0].1,
            pair[1].1
        );
    }
    Ok(())
}

/// Counters kept in the bytes: what was counted is what was won.
pub(super) async fn batches_lose_no_update(trial: Trial) -> Checked {
    const IDS: usize = 8;
    const ROUNDS: usize = 40;
    let batch: Vec<Swap> = (0..IDS).map(|number| creation(&id(number), counter(0))).collect();
    trial.swap(&batch).await?;
    let won = threads(&trial, |trial, thread| async move {
        let mut won = [0u64; IDS];
        // Half of the threads share half of the ids with the other half.
        let ids: Vec<Id> = (0..IDS).filter(|number| thread % 2 == 0 || number % 2 == 0).map(id).collect();
        for _ in 0..ROUNDS {
            let mut batch = Vec::new();
            for (id, found) in ids.iter().zip(trial.load(&ids).await?) {
                let found = found.ok_or_else(|| Wrong(format!("{id:?}: the record vanished")))?;
                let new = Some(counter(count(&found.bytes)? + 1));
                batch.push(Swap { id: id.clone(), seen: Seen::Version(found.version), new });
            }
            for (swap, answer) in batch.iter().zip(trial.swap(&batch).await?) {
                let number = (0..IDS).find(|number| id(*number) == swap.id).expect("one of ours");
                won[number] += u64::from(matches!(answer, Answered::Won(_)));
            }
        }
        Ok(won)
    })
    .await?;
    for number in 0..IDS {
        let counted = count(&trial.find(&id(number)).await?.bytes)?;
        let won: u64 = won.iter().map(|won| won[number]).sum();
        ensure!(counted == won, "record {number} counted {counted}, {won} updates won");
        ensure!(won > 0, "record {number}: nobody ever won");
    }
    Ok(())
}

/// Claim, check that nobody else is inside, release: what the whole project stands on.
pub(super) async fn a_claim_excludes_all_others(trial: Trial) -> Checked {
    const IDS: usize = 3;
    const ROUNDS: usize = 60;
    let inside: Arc<[AtomicU64; IDS]> = Arc::default();
    let fences: Arc<[AtomicU64; IDS]> = Arc::default();
    let claims = threads(&trial, |trial, thread| {
        let (inside, fences) = (Arc::clone(&inside), Arc::clone(&fences));
        async move {
            let mut claims = 0;
            for round in 0..ROUNDS {
                let number = (thread + round) % IDS;
                let answer =
                    trial.swap_one(&id(number), Seen::Absent, Some(held(thread.to_string()))).await?;
                let Answered::Won(version) = answer else { continue };
                claims += 1;
                let others = inside[number].fetch_add(1, Ordering::SeqCst);
                ensure!(others == 0, "{others} others had the claim at the same time");
                let before = fences[number].swap(version.0, Ordering::SeqCst);
                ensure!(before < version.0, "claimed with fence {}, there was {before} before", version.0);
                tokio::task::yield_now().await;
                inside[number].fetch_sub(1, Ordering::SeqCst);
                trial.remove(&id(number), version).await?;
            }
            Ok(claims)
        }
    })
    .await?;
    ensure!(claims.iter().sum::<usize>() >= IDS, "hardly anyone ever won: {claims:?}");
    Ok(())
}

/// Runs one future on each of several real threads, started together.
pub(super) async fn threads<S, T, F>(subject: &S, work: impl Fn(S, usize) -> F) -> Checked<Vec<T>>
where
    S: Clone,
    T: Send + 'static,
    F: Future<Output = Checked<T>> + Send + 'static,
{
    let runtime = tokio::runtime::Handle::current();
    let start = Arc::new(Barrier::new(THREADS));
    let running: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (runtime, start, work) = (runtime.clone(), Arc::clone(&start), work(subject.clone(), thread));
            let (done, result) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                start.wait();
                // Nobody listens any more if the check has failed already.
                let _ = done.send(runtime.block_on(work));
            });
            result
        })
        .collect();
    let mut results = Vec::new();
    for result in running {
        results.push(result.await.map_err(|_| Wrong("the store panicked in a thread".into()))??);
    }
    Ok(results)
}

/// A record that counts.
pub(super) fn counter(count: u64) -> Record {
    held(count.to_string())
}

/// What such a record has counted.
pub(super) fn count(bytes: &[u8]) -> Checked<u64> {
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| Wrong(format!("a counter became {bytes:?}")))
}
