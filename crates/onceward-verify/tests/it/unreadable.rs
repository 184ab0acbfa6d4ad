//! Runs the suite for damaged records on a store that reports some records as damaged, and on stores where one
//! damaged record affects others, which the suite must report.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::{
    Caps, Choose, Error, ErrorKind, Found, Id, Loaded, Page, Scan, State, Store, StoreFuture, Swap, Swapped,
    Watch, take_by_scan,
};
use onceward_verify::conformance::{self, Damage};
use onceward_verify::reference::Reference;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    None,
    FailsTheWholeLoad,
    FailsTheWholeSwap,
    FailsTheWholeScan,
    HidesIt,
    TakesItForAbsent,
}

#[tokio::test]
async fn one_that_harms_no_other_passes() {
    conformance::unreadable(async || Ok(Handle::new(Harm::None))).await;
}

#[tokio::test]
async fn every_harm_is_named() {
    for (harm, check) in [
        (Harm::FailsTheWholeLoad, "unreadable::is_the_failure_of_one_load"),
        (Harm::FailsTheWholeSwap, "unreadable::is_the_failure_of_one_swap"),
        (Harm::FailsTheWholeScan, "unreadable::is_listed_by_every_scan"),
        (Harm::HidesIt, "unreadable::is_listed_by_every_scan"),
        (Harm::TakesItForAbsent, "unreadable::is_the_failure_of_one_load"),
    ] {
        let failures = conformance::unreadable_failures(async || Ok(Handle::new(harm))).await;
        assert!(failures.iter().any(|failure| failure.check == check), "{harm:?}: {failures:?}");
    }
}

/// A right store, some of whose records count as damaged.
struct Damaged {
    inner: Arc<dyn Store>,
    ids: Mutex<BTreeSet<Id>>,
    harm: Harm,
}

impl Damaged {
    fn damaged(&self) -> MutexGuard<'_, BTreeSet<Id>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_damaged(&self, id: &Id) -> bool {
        self.damaged().contains(id)
    }
}

fn error() -> Error {
    Error::new(ErrorKind::Damaged, "damaged on purpose")
}

/// A handle on such a store.
#[derive(Clone)]
struct Handle(Arc<Damaged>);

impl Handle {
    fn new(harm: Harm) -> Self {
        Self(Arc::new(Damaged { inner: Reference::fresh(), ids: Mutex::default(), harm }))
    }
}

impl Damage for Handle {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    async fn damage(&self, id: &Id) {
        self.0.damaged().insert(id.clone());
    }
}

impl Store for Handle {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let store = &self.0;
            if store.harm == Harm::FailsTheWholeSwap && batch.iter().any(|swap| store.is_damaged(&swap.id)) {
                return Err(error());
            }
            let sound: Vec<Swap> = batch.iter().filter(|swap| !store.is_damaged(&swap.id)).cloned().collect();
            let mut answers = store.inner.swap(&sound).await?.into_iter();
            let answers = batch.iter().map(|swap| {
                let sound = !store.is_damaged(&swap.id);
                let answer = sound.then(|| answers.next().expect("one for each that is sound"));
                answer.unwrap_or_else(|| Swapped::Failed(error()))
            });
            Ok(answers.collect())
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let store = &self.0;
            let mut loaded = store.inner.load(ids).await?;
            for (_, loaded) in ids.iter().zip(&mut loaded).filter(|(id, _)| store.is_damaged(id)) {
                *loaded = match store.harm {
                    Harm::FailsTheWholeLoad => return Err(error()),
                    Harm::TakesItForAbsent => Ok(None),
                    _ => Err(error()),
                };
            }
            Ok(loaded)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let store = &self.0;
            let mut page = store.inner.scan(query).await?;
            let (damaged, sound): (Vec<(Id, Found)>, Vec<_>) =
                std::mem::take(&mut page.found).into_iter().partition(|(id, _)| store.is_damaged(id));
            page.found = sound;
            match store.harm {
                Harm::FailsTheWholeScan if !damaged.is_empty() => return Err(error()),
                Harm::HidesIt => {}
                _ => page.unreadable.extend(damaged.into_iter().map(|(id, _)| (id, error()))),
            }
            Ok(page)
        })
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        take_by_scan(self, state, limit, choose)
    }

    fn watch(&self) -> Option<Watch> {
        self.0.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.0.inner.caps()
    }
}
