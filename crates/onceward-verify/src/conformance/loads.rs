//! Checks of reads by id: they return the current records, in the order of the ids.

use onceward::{Id, Seen};

use super::trial::{Checked, Trial, ensure, held, id};

pub(super) async fn absent_is_none(trial: Trial) -> Checked {
    ensure!(trial.load_one(&id(1)).await?.is_none(), "a fresh store has a record");
    trial.create(&id(2), held("x")).await?;
    ensure!(trial.load_one(&id(1)).await?.is_none(), "a record of another id was found");
    Ok(())
}

pub(super) async fn empty_load_is_answered(trial: Trial) -> Checked {
    trial.load(&[]).await?;
    Ok(())
}

pub(super) async fn order_is_as_asked(trial: Trial) -> Checked {
    for number in (0..100).step_by(3) {
        trial.create(&id(number), held(number.to_string())).await?;
    }
    // 37 has no factor in common with 100: every number once, in an order that is neither way sorted.
    let numbers: Vec<usize> = (0..100).map(|step| step * 37 % 100).collect();
    let ids: Vec<Id> = numbers.iter().copied().map(id).collect();
    for (number, found) in numbers.iter().zip(trial.load(&ids).await?) {
        let expected = (number % 3 == 0).then(|| number.to_string());
        let found = found.map(|found| String::from_utf8_lossy(&found.bytes).into_owned());
        ensure!(found == expected, "asked for record {number}, got {found:?}");
    }
    Ok(())
}

pub(super) async fn an_id_may_be_asked_twice(trial: Trial) -> Checked {
    trial.create(&id(1), held("one")).await?;
    trial.create(&id(2), held("two")).await?;
    let found = trial.load(&[id(2), id(1), id(3), id(2), id(3)]).await?;
    let bytes: Vec<Option<&[u8]>> =
        found.iter().map(|found| found.as_ref().map(|found| &found.bytes[..])).collect();
    let expected = [Some(&b"two"[..]), Some(b"one"), None, Some(b"two"), None];
    ensure!(bytes == expected, "got {bytes:?}");
    Ok(())
}

/// Also from another task than the one that wrote: a pool of connections must not answer from the past.
pub(super) async fn a_swap_is_seen_at_once(trial: Trial) -> Checked {
    let id = id(1);
    let mut version = trial.create(&id, held("0")).await?;
    for step in 1..100 {
        let written = held(step.to_string());
        version = trial.put(&id, Seen::Version(version), written.clone()).await?;
        let (other, id) = (trial.clone(), id.clone());
        let look = tokio::spawn(async move { other.find_as(&id, version, &written).await });
        look.await.expect("looking does not panic")?;
    }
    trial.remove(&id, version).await?;
    ensure!(trial.load_one(&id).await?.is_none(), "a removal is not seen at once");
    Ok(())
}
