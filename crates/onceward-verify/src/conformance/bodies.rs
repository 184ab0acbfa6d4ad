//! Checks that stored bytes are returned unchanged, whatever their content and length.

use bytes::Bytes;
use onceward::{Applied, Seen, State, Swapped};

use super::trial::{Answered, Checked, FAR, Trial, creation, ensure, held, id, record, same, sorted};

const KIB: usize = 1024;
const MIB: usize = KIB * KIB;
/// The largest record that a check writes. The engine's own bound is far below.
const RECORD_BYTES_MAX: usize = 4 * MIB;

pub(super) async fn of_every_size(trial: Trial) -> Checked {
    let largest = trial.caps.promises.record_bytes_max.min(RECORD_BYTES_MAX);
    let sizes = [0, 1, 2, 255, 256, 4 * KIB - 1, 4 * KIB, 4 * KIB + 1, 65_535, 65_536, 300 * KIB, MIB];
    let sizes = sizes.into_iter().filter(|size| *size < largest).chain([largest]);
    for (number, size) in sizes.enumerate() {
        let id = id(number);
        let first = record(State::Done, Some(FAR), noise(size, 1));
        let version = trial.create(&id, first.clone()).await?;
        trial.find_as(&id, version, &first).await?;
        match trial.lose(&id, Seen::Absent, Some(held("x"))).await? {
            Some(found) => same(&id, &found, version, &first)?,
            None => ensure!(false, "the loser to {size} bytes learned nothing"),
        }
        let second = record(State::Done, Some(FAR), noise(size, 2));
        let version = trial.put(&id, Seen::Version(version), second.clone()).await?;
        trial.find_as(&id, version, &second).await?;
    }
    Ok(())
}

pub(super) async fn of_every_byte(trial: Trial) -> Checked {
    let id = id(1);
    let written = held((0..=255).collect::<Vec<u8>>());
    let version = trial.create(&id, written.clone()).await?;
    trial.find_as(&id, version, &written).await?;
    Ok(())
}

pub(super) async fn large_ones_in_one_batch(trial: Trial) -> Checked {
    let largest = trial.caps.promises.record_bytes_max.min(MIB);
    let body = |number| noise(largest - number, number as u64);
    let batch = sorted((0..8).map(|number| creation(&id(number), held(body(number)))).collect());
    let answers = trial.swap(&batch).await?;
    let ids: Vec<_> = batch.iter().map(|swap| swap.id.clone()).collect();
    let found = trial.load(&ids).await?;
    for ((swap, answer), found) in batch.iter().zip(&answers).zip(found) {
        let (Answered::Won(version), Some(found)) = (answer, found) else {
            return Err(super::trial::Wrong(format!("{:?}: large record not written: {answer:?}", swap.id)));
        };
        same(&swap.id, &found, *version, swap.new.as_ref().expect("a creation"))?;
    }
    Ok(())
}

/// A record that is larger than the store takes is not written, and nobody else's record suffers from it.
/// (The engine keeps to the bound; somebody else may not.)
pub(super) async fn one_that_is_too_large_harms_no_other(trial: Trial) -> Checked {
    let largest = trial.caps.promises.record_bytes_max;
    if largest > RECORD_BYTES_MAX {
        return Ok(());
    }
    let batch = sorted((0..3).map(|number| creation(&id(number), held(number.to_string()))).collect());
    let mut mixed = batch.clone();
    mixed[1].new = Some(held(noise(2 * largest, 1)));
    let mut written = [false; 3];
    match trial.store.swap(&mixed).await {
        Ok(answers) => {
            ensure!(answers.len() == 3, "a batch of 3 swaps got {} answers", answers.len());
            for (at, answer) in answers.iter().enumerate() {
                match answer {
                    Swapped::Won(_) => written[at] = true,
                    Swapped::Failed(error) if at == 1 => {
                        ensure!(error.applied() == Applied::No, "too large, and perhaps written: {error:?}");
                    }
                    answer => ensure!(false, "swap {at} beside one that is too large got {answer:?}"),
                }
            }
        }
        Err(error) => ensure!(error.applied() == Applied::No, "too large, and perhaps written: {error:?}"),
    }
    for (at, swap) in mixed.iter().enumerate() {
        let there = trial.load_one(&swap.id).await?.map(|found| found.bytes);
        let expected = swap.new.as_ref().filter(|_| written[at]).map(|new| &new.bytes);
        ensure!(there.as_ref() == expected, "swap {at} beside one that is too large: other bytes are there");
    }
    Ok(())
}

/// Bytes that do not compress and differ for every seed.
pub(super) fn noise(size: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}
