//! Bytes come back as they were, whatever they are and however many.

use bytes::Bytes;
use onceward::{Seen, State, Swapped};

use super::trial::{Checked, FAR, Trial, creation, ensure, held, id, record, same, sorted};

const KIB: usize = 1024;
/// The largest receipt that the engine writes.
const BODY_BYTES_MAX: usize = KIB * KIB;

pub(super) async fn of_every_size(trial: Trial) -> Checked {
    let sizes =
        [0, 1, 2, 255, 256, 4 * KIB - 1, 4 * KIB, 4 * KIB + 1, 65_535, 65_536, 300 * KIB, BODY_BYTES_MAX];
    for (number, size) in sizes.into_iter().enumerate() {
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
    let body = |number| noise(BODY_BYTES_MAX - number, number as u64);
    let batch = sorted((0..8).map(|number| creation(&id(number), held(body(number)))).collect());
    let answers = trial.swap(&batch).await?;
    let ids: Vec<_> = batch.iter().map(|swap| swap.id.clone()).collect();
    let found = trial.load(&ids).await?;
    for ((swap, answer), found) in batch.iter().zip(&answers).zip(found) {
        let (Swapped::Won(version), Some(found)) = (answer, found) else {
            return Err(super::trial::Wrong(format!("{:?}: large record not written: {answer:?}", swap.id)));
        };
        same(&swap.id, &found, *version, swap.new.as_ref().expect("a creation"))?;
    }
    Ok(())
}

/// Bytes that do not compress and differ for every seed.
fn noise(size: usize, seed: u64) -> Bytes {
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
