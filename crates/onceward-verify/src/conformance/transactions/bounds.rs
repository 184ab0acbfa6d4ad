//! Checks of ids and records at their size limits, in every call of a transaction.

use onceward::{Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, Record, SCOPE_BYTES_MAX, Seen, State, Swap};

use super::super::bodies::noise;
use super::super::trial::{Checked, FAR, creation, ensure, id_of, record, same};
use super::Harness;
use super::fixture::{TransactionFixture, id};

const KIB: usize = 1024;

pub(super) async fn ids_of_every_kind<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let all: String = (0x20..=0x7eu8).map(char::from).collect();
    let longest = |fill: &str| {
        id_of(&fill.repeat(SCOPE_BYTES_MAX), &fill.repeat(OPERATION_BYTES_MAX), &fill.repeat(KEY_BYTES_MAX))
    };
    let mut ids = vec![
        id_of(&all, &all.replace('#', ""), &all),
        longest("a"),
        longest("'"),
        longest("\\"),
        id_of("scope", "operation", "key").step("step")?.step("nested")?,
        id_of("scope", "operation", "key#step"),
    ];
    for word in ["order", "Order", "order ", " order"] {
        ids.extend([id_of(word, "o", "k"), id_of("s", word, "k"), id_of("s", "o", word)]);
    }
    for (number, id) in ids.iter().enumerate() {
        round_trip(&fixture, id, &record(State::Done, Some(FAR), number.to_string())).await?;
    }
    for (number, id) in ids.iter().enumerate() {
        let found = fixture.trial.find(id).await?;
        ensure!(found.bytes == number.to_string().as_bytes(), "{id:?}: another id's record is there");
    }
    Ok(())
}

pub(super) async fn records_of_every_size<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let largest = fixture.trial.caps.promises.record_bytes_max.min(KIB * KIB);
    for (number, size) in [0, 1, 300, 9 * KIB, 70 * KIB, largest].into_iter().enumerate() {
        let written = record(State::Done, Some(FAR), noise(size, number as u64));
        round_trip(&fixture, &id(&number.to_string()), &written).await?;
    }
    Ok(())
}

/// Claims, swaps beside it, and completes, all with this record.
async fn round_trip<B: Harness>(fixture: &TransactionFixture<B>, id: &Id, written: &Record) -> Checked {
    let (mut tx, version) = fixture.win(&creation(id, written.clone())).await?;
    let beside = id_of("beside", "operation", &version.0.to_string());
    fixture.swap_one(&mut tx, &creation(&beside, written.clone())).await?;
    let seen = Seen::Version(version);
    fixture.commit(tx, &Swap { id: id.clone(), seen, new: Some(written.clone()) }).await?;
    for id in [id, &beside] {
        let found = fixture.trial.find(id).await?;
        same(id, &found, found.version, written)?;
    }
    Ok(())
}
