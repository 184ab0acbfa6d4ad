//! Wraps the checked store and changes what must not matter: signals are lost, doubled, late or false, or hints
//! differ.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Caps, Choose, Hints, Id, Loaded, Page, Scan, Signals, State, Store, StoreFuture, Swap, Swapped, Watch,
    take_by_scan,
};

use super::trial::id_of;

/// How late a delayed signal is.
const LATE: Duration = Duration::from_millis(150);
/// How often a false signal comes.
const FALSE_EVERY: Duration = Duration::from_millis(5);

/// What becomes of a store's signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mangling {
    /// The store has none, although it had some.
    Hidden,
    /// None ever comes.
    Lost,
    /// Each comes twice.
    Doubled,
    /// Each comes late, and those that come meanwhile are lost.
    Late,
    /// Some come although nothing has changed, some about an id that does not exist, some about any.
    False,
}

impl Mangling {
    pub(super) const ALL: [Self; 5] = [Self::Hidden, Self::Lost, Self::Doubled, Self::Late, Self::False];
}

/// The store with other signals and, where they are given, other hints.
pub(super) struct Mangled {
    pub(super) store: Arc<dyn Store>,
    pub(super) signals: Mangling,
    pub(super) hints: Option<Hints>,
}

impl Store for Mangled {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        self.store.swap(batch)
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.store.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.store.scan(query)
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
        if self.signals == Mangling::Hidden {
            return None;
        }
        Some(Box::new(MangledSignals {
            inner: self.store.watch(),
            mangling: self.signals,
            again: Vec::new(),
            sent: 0,
        }))
    }

    fn caps(&self) -> Caps {
        let caps = self.store.caps();
        caps.with_hints(self.hints.unwrap_or(caps.hints))
    }
}

struct MangledSignals {
    inner: Option<Watch>,
    mangling: Mangling,
    /// What comes once more.
    again: Vec<Option<Id>>,
    sent: usize,
}

impl Signals for MangledSignals {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<Id>> + Send + '_>> {
        Box::pin(async {
            match self.mangling {
                Mangling::Hidden | Mangling::Lost => pending().await,
                Mangling::Doubled => {
                    if let Some(again) = self.again.pop() {
                        return again;
                    }
                    let changed = inner(&mut self.inner).await;
                    self.again.push(changed.clone());
                    changed
                }
                Mangling::Late => {
                    let changed = inner(&mut self.inner).await;
                    tokio::time::sleep(LATE).await;
                    changed
                }
                Mangling::False => {
                    tokio::time::sleep(FALSE_EVERY).await;
                    self.sent += 1;
                    self.sent.is_multiple_of(2).then(|| id_of("nobody", "nothing", "never"))
                }
            }
        })
    }
}

async fn inner(watch: &mut Option<Watch>) -> Option<Id> {
    match watch {
        Some(watch) => watch.changed().await,
        None => pending().await,
    }
}
