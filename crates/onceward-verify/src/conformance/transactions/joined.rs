//! Checks of swaps inside a transaction: they behave as those of the store, and commit with the transaction.

use std::time::Duration;

use onceward::{Found, Id, Record, ScanTarget, Seen, State, Swap, Version};

use super::super::trial::{
    Answered, Checked, FAR, Wrong, creation, ensure, everything, held, id_of, once_each, record, same, sorted,
};
use super::fixture::{TransactionFixture, completion, id};
use super::{Harness, Tx};

pub(super) async fn an_empty_batch_is_answered<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let (mut tx, version) = fixture.claim(&id("1")).await?;
    fixture.swap(&mut tx, &[]).await?;
    fixture.commit(tx, &completion(&id("1"), version)).await
}

pub(super) async fn each_swap_has_its_own_answer<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let own = id("own");
    let scene = Scene::set(&fixture).await?;
    let (mut tx, version) = fixture.claim(&own).await?;
    scene.play(&fixture, &mut tx).await?;
    scene.is_as_before(&fixture).await?;
    fixture.commit(tx, &completion(&own, version)).await?;
    for name in ["created", "created too", "replaced"] {
        let found = fixture.trial.find(&id(name)).await?;
        ensure!(&found.bytes[..] == b"new", "{name}: committed, and others see {found:?}");
    }
    fixture.is_absent(&id("removed"), "removed and committed").await?;
    fixture.is_absent(&id("looked for"), "only looked for").await?;
    fixture.trial.find_as(&id("kept"), scene.version("kept"), &scene.old).await?;
    fixture.trial.find_as(&id("looked at"), scene.version("looked at"), &scene.old).await?;
    Ok(())
}

pub(super) async fn a_rollback_undoes_every_swap<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let own = id("own");
    let scene = Scene::set(&fixture).await?;
    for round in 0..2 {
        let (mut tx, _) = fixture.claim(&own).await?;
        scene.play(&fixture, &mut tx).await?;
        fixture.undo(tx, round).await;
        scene.is_as_before(&fixture).await?;
        fixture.is_absent(&own, "undone").await?;
    }
    Ok(())
}

/// Records that are there before, and swaps of every kind on them.
struct Scene {
    old: Record,
    there: Vec<(&'static str, Version)>,
}

impl Scene {
    async fn set<B: Harness>(fixture: &TransactionFixture<B>) -> Checked<Self> {
        let (old, mut there) = (held("old"), Vec::new());
        for name in ["replaced", "kept", "removed", "looked at"] {
            there.push((name, fixture.trial.create(&id(name), old.clone()).await?));
        }
        Ok(Self { old, there })
    }

    fn version(&self, name: &str) -> Version {
        self.there.iter().find(|(there, _)| *there == name).expect("it is there").1
    }

    async fn play<B: Harness>(&self, fixture: &TransactionFixture<B>, tx: &mut Tx<B>) -> Checked {
        let swap = |name, seen, new: Option<Record>| Swap { id: id(name), seen, new };
        let new = Some(record(State::Waiting, Some(FAR), "new"));
        let batch = sorted(vec![
            swap("created", Seen::Absent, new.clone()),
            swap("created too", Seen::Absent, new.clone()),
            swap("replaced", Seen::Version(self.version("replaced")), new.clone()),
            swap("kept", Seen::Version(Version(self.version("kept").0 + 1)), new),
            swap("removed", Seen::Version(self.version("removed")), None),
            swap("looked for", Seen::Absent, None),
            swap("looked at", Seen::Absent, None),
        ]);
        let answers = fixture.swap(tx, &batch).await?;
        for (swap, answer) in batch.iter().zip(answers) {
            let name = swap.id.key();
            match (matches!(name, "kept" | "looked at"), answer) {
                (false, Answered::Won(_)) => {}
                (true, Answered::Lost(Some(found))) => same(&swap.id, &found, self.version(name), &self.old)?,
                (_, answer) => ensure!(false, "swap `{name}` of the batch got {answer:?}"),
            }
        }
        Ok(())
    }

    async fn is_as_before<B: Harness>(&self, fixture: &TransactionFixture<B>) -> Checked {
        for (name, version) in &self.there {
            fixture.trial.find_as(&id(name), *version, &self.old).await?;
        }
        let ids: Vec<Id> = self.there.iter().map(|(name, _)| id(name)).collect();
        let found = fixture.trial.pages(everything(), 50, 20).await?;
        once_each(&found, &ids).map_err(|Wrong(wrong)| Wrong(format!("others see another state: {wrong}")))
    }
}

pub(super) async fn nothing_for_nothing_is_a_look<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let (own, there, absent) = (id("own"), id("there"), id("absent"));
    let written = held("there");
    let version = fixture.trial.create(&there, written.clone()).await?;
    let (mut tx, claimed) = fixture.claim(&own).await?;
    let seen = load_in(&fixture, &mut tx, &absent).await?;
    ensure!(seen.is_none(), "nothing is there, a look found {seen:?}");
    let seen =
        load_in(&fixture, &mut tx, &there).await?.ok_or_else(|| Wrong("a look found nothing".into()))?;
    same(&there, &seen, version, &written)?;
    let seen =
        load_in(&fixture, &mut tx, &own).await?.ok_or_else(|| Wrong("a look found no claim".into()))?;
    ensure!(seen.version == claimed, "claimed as {claimed:?}, a look inside found {:?}", seen.version);
    fixture.commit(tx, &completion(&own, claimed)).await?;
    fixture.is_absent(&absent, "only looked at").await?;
    fixture.trial.find_as(&there, version, &written).await?;
    Ok(())
}

async fn load_in<B: Harness>(
    fixture: &TransactionFixture<B>,
    tx: &mut Tx<B>,
    id: &Id,
) -> Checked<Option<Found>> {
    let look = Swap { id: id.clone(), seen: Seen::Absent, new: None };
    Ok(match fixture.swap_one(tx, &look).await? {
        Answered::Won(_) => None,
        Answered::Lost(found) => found,
    })
}

/// One id through its whole life, in one transaction.
pub(super) async fn its_own_writes_are_seen_inside<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let (own, other) = (id("own"), id("other"));
    let (mut tx, claimed) = fixture.claim(&own).await?;
    let mut highest = Version(0);
    for round in 0..3 {
        let mut seen = Seen::Absent;
        for bytes in ["first", "second", "third"] {
            let new = held(bytes);
            let swap = Swap { id: other.clone(), seen, new: Some(new.clone()) };
            let Answered::Won(version) = fixture.swap_one(&mut tx, &swap).await? else {
                return Err(Wrong(format!("round {round}: `{bytes}` over {seen:?} lost")));
            };
            ensure!(version > highest, "round {round}: `{bytes}` is {version:?}, before was {highest:?}");
            let found = load_in(&fixture, &mut tx, &other).await?;
            match &found {
                Some(found) => same(&other, found, version, &new)?,
                None => ensure!(false, "round {round}: `{bytes}` was written and is not there"),
            }
            (seen, highest) = (Seen::Version(version), version);
        }
        fixture.swap_one(&mut tx, &Swap { id: other.clone(), seen, new: None }).await?;
        let found = load_in(&fixture, &mut tx, &other).await?;
        ensure!(found.is_none(), "round {round}: removed, a look inside found {found:?}");
    }
    fixture.commit(tx, &completion(&own, claimed)).await?;
    fixture.is_absent(&other, "removed and committed").await
}

pub(super) async fn a_large_batch_is_answered_in_order<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    const SWAPS: usize = 300;
    let ids: Vec<Id> = (0..SWAPS).map(|number| id(&format!("{number:04}"))).collect();
    for taken in ids.iter().step_by(29) {
        fixture.trial.create(taken, held("taken")).await?;
    }
    let own = id("own");
    let (mut tx, version) = fixture.claim(&own).await?;
    let batch: Vec<Swap> = ids.iter().map(|id| creation(id, held(id.key().to_owned()))).collect();
    let answers = fixture.swap(&mut tx, &sorted(batch)).await?;
    for (number, answer) in answers.iter().enumerate() {
        let wins = matches!(answer, Answered::Won(_));
        ensure!(wins == (number % 29 != 0), "swap {number} of the batch got {answer:?}");
    }
    fixture.commit(tx, &completion(&own, version)).await?;
    for (number, found) in fixture.trial.load(&ids).await?.into_iter().enumerate() {
        let bytes = found.map(|found| found.bytes).unwrap_or_default();
        let expected = if number % 29 == 0 { "taken" } else { ids[number].key() };
        ensure!(bytes == expected.as_bytes(), "record {number} of the batch has {bytes:?}");
    }
    Ok(())
}

/// The indexes of the store follow what transactions write.
pub(super) async fn what_was_committed_is_found_by_scans<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let parent = id_of("scope", "operation", "parent");
    let step = parent.step("step")?;
    let (mut tx, version) = fixture.claim(&parent).await?;
    let waiting = record(State::Waiting, Some(Duration::ZERO), "x");
    fixture.swap_one(&mut tx, &creation(&step, waiting)).await?;
    let none: [Id; 0] = [];
    for of in scans(&parent) {
        once_each(&fixture.trial.pages(of.clone(), 5, 10).await?, &none)
            .map_err(|Wrong(wrong)| Wrong(format!("{of:?} before the commit: {wrong}")))?;
    }
    fixture.commit(tx, &completion(&parent, version)).await?;
    for of in scans(&parent) {
        once_each(&fixture.trial.pages(of.clone(), 5, 10).await?, std::slice::from_ref(&step))
            .map_err(|Wrong(wrong)| Wrong(format!("{of:?} after the commit: {wrong}")))?;
    }
    Ok(())
}

/// Ways to find a step that waits and is due.
fn scans(parent: &Id) -> [ScanTarget; 4] {
    let state = Some(State::Waiting);
    [
        ScanTarget::Due(None),
        ScanTarget::Due(state),
        ScanTarget::Matching(onceward::Filter::default().with_state(state)),
        ScanTarget::StepsOf(parent.clone()),
    ]
}
