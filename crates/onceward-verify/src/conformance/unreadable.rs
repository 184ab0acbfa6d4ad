//! The conformance suite for damaged records: one that cannot be read fails its own id, and no other.
//!
//! Each store damages records in its own way, so its author provides a [`Damage`].

use std::future::Future;
use std::sync::Arc;

use onceward::{Filter, Id, Scan, ScanTarget, Seen, State, Store, Swap, Swapped};

use super::trial::{Answered, Checked, FAR, Trial, Wrong, ensure, held, id_of, plausible, record, sorted};
use super::{Check, FailedCheck, one, panic_on_failures};

/// A fresh store whose records can be damaged: a bit flipped on disk, a column with a value from the future.
pub trait Damage: Send + Sync + 'static {
    /// The store; each time a handle on the same one.
    fn store(&self) -> Arc<dyn Store>;

    /// Damages the record of this id so that the store cannot read it any more. Its id stays readable.
    fn damage(&self, id: &Id) -> impl Future<Output = ()> + Send;
}

macro_rules! table {
    ($($check:ident)+) => {
        vec![$(Check {
            name: concat!("unreadable::", stringify!($check)),
            run: |scene| Box::pin(async move { $check::<D>(&scene).await }),
        },)+]
    };
}

fn checks<D: Damage>() -> Vec<Check<Scene<D>>> {
    table! {
        is_the_failure_of_one_load
        is_the_failure_of_one_swap
        is_listed_by_every_scan
        does_not_stop_a_sweep
    }
}

/// Runs every check of damaged records and panics with a list of those that failed. For stores that can be
/// damaged at all; one in memory cannot. `make` gives a fresh and empty store each time.
pub async fn unreadable<D, M, F>(make: M)
where
    D: Damage,
    M: Fn() -> F,
    F: Future<Output = onceward::Result<D>>,
{
    panic_on_failures("this store", &unreadable_failures(make).await, checks::<D>().len());
}

/// Runs every check of damaged records and returns those that failed. For tests that expect some to.
pub async fn unreadable_failures<D, M, F>(make: M) -> Vec<FailedCheck>
where
    D: Damage,
    M: Fn() -> F,
    F: Future<Output = onceward::Result<D>>,
{
    let mut failures = Vec::new();
    for check in checks::<D>() {
        let checked = match make().await {
            Ok(damage) => one(&check, Scene::new(damage)).await,
            Err(error) => Err(Wrong(format!("no store to check: {error:?}"))),
        };
        failures.extend(checked.err().map(|Wrong(wrong)| FailedCheck { check: check.name, wrong }));
    }
    failures
}

/// Five records that are due, of which the third is damaged. All are steps of one intent.
struct Scene<D> {
    damage: D,
    trial: Trial,
    parent: Id,
}

const RECORDS: usize = 5;
const DAMAGED: usize = 2;

impl<D: Damage> Scene<D> {
    fn new(damage: D) -> Self {
        let store = damage.store();
        let caps = store.caps();
        Self { damage, trial: Trial { store, caps }, parent: id_of("scope", "operation", "key") }
    }

    fn id(&self, number: usize) -> Id {
        self.parent.step(&format!("step-{number}")).expect("a short name")
    }

    fn ids(&self) -> Vec<Id> {
        (0..RECORDS).map(|number| self.id(number)).collect()
    }

    fn sound(&self) -> Vec<Id> {
        self.ids().into_iter().filter(|id| *id != self.id(DAMAGED)).collect()
    }

    async fn set(&self) -> Checked<Vec<onceward::Version>> {
        let mut versions = Vec::new();
        for id in self.ids() {
            let due_at_once =
                record(State::Waiting, Some(std::time::Duration::ZERO), id.operation().to_owned());
            versions.push(self.trial.create(&id, due_at_once).await?);
        }
        self.damage.damage(&self.id(DAMAGED)).await;
        Ok(versions)
    }
}

async fn is_the_failure_of_one_load<D: Damage>(scene: &Scene<D>) -> Checked {
    scene.set().await?;
    let ids = scene.ids();
    let loaded = scene.trial.store.load(&ids).await?;
    ensure!(loaded.len() == RECORDS, "a load of {RECORDS} ids got {} answers", loaded.len());
    for (number, (id, loaded)) in ids.iter().zip(&loaded).enumerate() {
        match loaded {
            Err(_) => ensure!(number == DAMAGED, "{id:?} is sound, and cannot be read: {loaded:?}"),
            Ok(Some(found)) if number != DAMAGED => {
                ensure!(found.bytes == id.operation().as_bytes(), "{id:?}: other bytes than written");
            }
            Ok(found) => ensure!(false, "{id:?}, damaged or not, was loaded as {found:?}"),
        }
    }
    Ok(())
}

async fn is_the_failure_of_one_swap<D: Damage>(scene: &Scene<D>) -> Checked {
    let versions = scene.set().await?;
    let (free, damaged) = (id_of("scope", "operation", "free"), scene.id(DAMAGED));
    let swap = |id: &Id, seen, new| Swap { id: id.clone(), seen, new };
    let batch = sorted(vec![
        swap(&scene.id(0), Seen::Version(versions[0]), Some(held("replaced"))),
        swap(&scene.id(1), Seen::Absent, Some(held("loses"))),
        swap(&damaged, Seen::Absent, Some(held("fails"))),
        swap(&scene.id(3), Seen::Version(versions[3]), None),
        swap(&free, Seen::Absent, Some(held("created"))),
    ]);
    let mut answers = scene.trial.store.swap(&batch).await?;
    ensure!(answers.len() == batch.len(), "a batch of {} swaps got {} answers", batch.len(), answers.len());
    let at = batch.iter().position(|swap| swap.id == damaged).expect("it is in the batch");
    let failed = answers.remove(at);
    ensure!(matches!(failed, Swapped::Failed(_)), "{damaged:?} is damaged, a swap of it got {failed:?}");
    let mut others = batch.clone();
    others.remove(at);
    for (swap, answer) in others.iter().zip(plausible(&others, answers)?) {
        let loses = swap.id == scene.id(1);
        ensure!(matches!(answer, Answered::Lost(_)) == loses, "{:?} beside it got {answer:?}", swap.id);
    }
    ensure!(
        scene.trial.load_one(&scene.id(3)).await?.is_none(),
        "a removal beside a damaged record did not happen"
    );
    ensure!(scene.trial.find(&free).await?.bytes == "created", "a creation beside it did not happen");
    Ok(())
}

async fn is_listed_by_every_scan<D: Damage>(scene: &Scene<D>) -> Checked {
    scene.set().await?;
    let state = Some(State::Waiting);
    let scans = [
        ScanTarget::Due(None),
        ScanTarget::Due(state),
        ScanTarget::Matching(Filter::default()),
        ScanTarget::Matching(Filter::default().with_scope("scope".to_owned())),
        ScanTarget::StepsOf(scene.parent.clone()),
    ];
    for of in scans {
        for limit in [1, 2, 100] {
            let (found, unreadable) = pages(scene, of.clone(), limit).await?;
            let named = format!("{of:?} with limit {limit}");
            ensure!(found == scene.sound(), "{named}: sound are {:?}, found {found:?}", scene.sound());
            // Damage may be in what says that a record belongs here; where it is listed, it is the damaged
            // one.
            let listed = unreadable.iter().all(|id| *id == scene.id(DAMAGED)) && unreadable.len() <= 1;
            ensure!(listed, "{named}: unreadable are {unreadable:?}");
            let must = matches!(&of, ScanTarget::Matching(filter) if filter.state.is_none());
            ensure!(!must || unreadable.len() == 1, "{named}: the damaged record is not listed");
        }
    }
    Ok(())
}

/// As a sweep does it: what can be read is removed, and the scan comes to its end.
async fn does_not_stop_a_sweep<D: Damage>(scene: &Scene<D>) -> Checked {
    scene.set().await?;
    for id in scene.sound() {
        let version = scene.trial.find(&id).await?.version;
        scene.trial.put(&id, Seen::Version(version), record(State::Done, Some(FAR), "kept")).await?;
    }
    let (due, _) = pages(scene, ScanTarget::Due(None), 2).await?;
    ensure!(due.is_empty(), "nothing that can be read is due, found {due:?}");
    let (found, _) = pages(scene, ScanTarget::Matching(Filter::default()), 2).await?;
    ensure!(found == scene.sound(), "sound are {:?}, found {found:?}", scene.sound());
    Ok(())
}

/// All pages: what was found and what could not be read, each sorted.
async fn pages<D: Damage>(scene: &Scene<D>, of: ScanTarget, limit: usize) -> Checked<(Vec<Id>, Vec<Id>)> {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    let mut query = Scan::new(of, limit);
    for _ in 0..40 {
        let page = scene.trial.store.scan(&query).await?;
        found.extend(page.found.into_iter().map(|(id, _)| id));
        unreadable.extend(page.unreadable.into_iter().map(|(id, _)| id));
        query.after = page.next;
        if query.after.is_none() {
            found.sort();
            unreadable.sort();
            return Ok((found, unreadable));
        }
    }
    Err(Wrong(format!("{:?} with limit {limit} did not end", query.target)))
}
