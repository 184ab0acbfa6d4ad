//! A simulated volatile front: it loses, delays, mixes up and invents entries, by seed. Nothing that the checker watches
//! over may depend on it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onceward::{
    Error, ErrorKind, Front, FrontCache, FrontKey, FrontPut, Id, IdentitySource, StoreFuture, StoreIdentity,
};

use super::executor::{Executor, OUTSIDE, Process, lock};
use super::store::SimStore;
use crate::broken::fronts::FrontFlaw;
use crate::random::Random;

/// How a simulated front behaves.
#[derive(Clone, Copy, Debug)]
pub struct FrontBehavior {
    /// How many of a thousand answers are not what was put there last.
    pub wrong_per_thousand: u32,
    /// How long engines believe it, and their own memory.
    pub age_max: Duration,
    /// How long before its retention an entry ends.
    pub retention_margin: Duration,
    /// How often an operator erases something.
    pub erase_every: Duration,
}

impl FrontBehavior {
    /// By chance; `None` for no front.
    pub fn of(random: &mut Random) -> Option<Self> {
        random.chance(400).then(|| Self {
            wrong_per_thousand: random.pick(&[0, 50, 400]),
            age_max: random.pick(&[20, 150, 1_000, 60_000].map(Duration::from_millis)),
            retention_margin: random.pick(&[0, 5].map(Duration::from_millis)),
            erase_every: random.micros(10_000, 300_000),
        })
    }
}

/// How long a late write is under way at most: longer than engines believe most entries.
const LATE_US_MAX: u64 = 3_000_000;
/// Longer than an engine waits for an answer.
const SLOW: Duration = Duration::from_millis(40);

/// The front that all processes share.
pub(crate) struct SimFront {
    executor: Arc<Executor>,
    store: Arc<SimStore>,
    behavior: FrontBehavior,
    /// What a broken front knows besides.
    flaw: FrontFlaw,
    ids: Vec<Id>,
    state: Mutex<FrontState>,
}

#[derive(Default)]
struct FrontState {
    now: BTreeMap<FrontKey, Bytes>,
    /// Everything that was ever put, in order.
    all: Vec<(FrontKey, Bytes)>,
    identity: u8,
    epoch: u64,
}

/// What an answer is.
#[derive(Clone, Copy)]
enum Lie {
    Nothing,
    Stale,
    OfAnother,
    Forged,
    Garbage,
    Held,
    Failure,
    Slow,
}

impl SimFront {
    pub(crate) fn new(
        executor: &Arc<Executor>,
        store: &Arc<SimStore>,
        behavior: FrontBehavior,
        flaw: FrontFlaw,
        ids: Vec<Id>,
    ) -> Arc<Self> {
        let (executor, store) = (Arc::clone(executor), Arc::clone(store));
        Arc::new(Self { executor, store, behavior, flaw, ids, state: Mutex::default() })
    }

    /// The front as one process has it.
    pub(crate) fn handle(self: &Arc<Self>, process: Process) -> Front {
        let handle = Arc::new(FrontHandle { front: Arc::clone(self), process });
        Front::new(handle.clone(), handle)
    }

    /// The identity of the store, as somebody who reads it at this moment finds it.
    pub(crate) fn identity(&self) -> StoreIdentity {
        let number = lock(&self.state).identity;
        StoreIdentity::new(vec![number], [number; 32], self.store.now_us())
    }

    /// What is there for an id. For broken callers.
    pub(crate) fn peek(&self, id: &Id) -> Option<Bytes> {
        let key = self.identity().key_of(id);
        lock(&self.state).now.get(&key).cloned()
    }

    /// Has an entry there, whatever was there.
    pub(crate) fn write(&self, key: FrontKey, bytes: Bytes) {
        let mut state = lock(&self.state);
        state.all.push((key, bytes.clone()));
        state.now.insert(key, bytes);
    }

    fn answer(&self, key: &FrontKey, lie: Option<Lie>) -> Option<Bytes> {
        let now_us = self.store.now_us();
        let mut state = lock(&self.state);
        let pick = |of: &[Bytes]| (!of.is_empty()).then(|| self.executor.draw(|random| random.pick(of)));
        let honest = state.now.get(key).cloned();
        match lie {
            None | Some(Lie::Failure | Lie::Slow) => honest,
            Some(Lie::Nothing) => {
                // As if it had been flushed.
                state.now.clear();
                None
            }
            Some(Lie::Stale) => {
                let of_key: Vec<Bytes> =
                    state.all.iter().filter(|(of, _)| of == key).map(|(_, bytes)| bytes.clone()).collect();
                pick(&of_key)
            }
            Some(Lie::OfAnother) => {
                let all: Vec<Bytes> = state.all.iter().map(|(_, bytes)| bytes.clone()).collect();
                pick(&all)
            }
            Some(Lie::Forged) => honest.map(|bytes| {
                let mut forged = bytes.to_vec();
                let at = self.executor.draw(|random| random.below(forged.len()));
                forged[at] ^= 1;
                forged.into()
            }),
            Some(Lie::Garbage) => Some(Bytes::from_static(
                b"\x01 nothing that was ever sealed, but long enough to look like it, perhaps",
            )),
            Some(Lie::Held) => {
                let ahead_us = self.executor.draw(|random| random.between(0, 2_000_000));
                Some(onceward::front_entry::hint(now_us + ahead_us))
            }
        }
    }
}

/// The front as one process has it, and the way to the identity of the store.
struct FrontHandle {
    front: Arc<SimFront>,
    process: Process,
}

impl FrontCache for FrontHandle {
    fn get<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let front = &self.front;
            let (lie, way) = front.executor.draw(|random| {
                let wrong = [
                    (2, Lie::Nothing),
                    (3, Lie::Stale),
                    (3, Lie::OfAnother),
                    (2, Lie::Forged),
                    (1, Lie::Garbage),
                    (3, Lie::Held),
                    (1, Lie::Failure),
                    (1, Lie::Slow),
                ];
                let lie = random.chance(front.behavior.wrong_per_thousand).then(|| random.weighed(&wrong));
                (lie, random.micros(0, 400))
            });
            let way = if matches!(lie, Some(Lie::Slow)) { SLOW } else { way };
            front.executor.sleep(self.process, way).await;
            if matches!(lie, Some(Lie::Failure)) {
                return Err(Error::new(ErrorKind::Unavailable, "simulated: the front fails"));
            }
            let answer = front.answer(key, lie);
            Ok(front.flaw.answer(front, &front.ids, key, answer))
        })
    }

    fn put(&self, put: FrontPut) {
        let (lost, late) = self.front.executor.draw(|random| {
            let late_us_max = random.pick(&[100, 100, 100, 5_000, LATE_US_MAX]);
            (random.chance(30), random.micros(0, late_us_max))
        });
        if lost {
            return;
        }
        let front = Arc::clone(&self.front);
        self.front.executor.spawn(OUTSIDE, async move {
            front.executor.sleep(OUTSIDE, late).await;
            // It keeps everything for as long as it likes.
            if put.replace || !lock(&front.state).now.contains_key(&put.key) {
                front.write(put.key, put.bytes);
            }
        });
    }

    fn remove<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (lost, way) = self.front.executor.draw(|random| (random.chance(200), random.micros(0, 400)));
            self.front.executor.sleep(self.process, way).await;
            if !lost {
                lock(&self.front.state).now.remove(key);
            }
            Ok(())
        })
    }

    /// Whenever it likes.
    fn changed<'a>(
        &'a self,
        _: &'a FrontKey,
        _: Option<&'a Bytes>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let way = self.front.executor.draw(|random| random.micros(0, 300_000));
        Box::pin(async move { self.front.executor.sleep(self.process, way).await })
    }
}

impl IdentitySource for FrontHandle {
    fn read(&self) -> StoreFuture<'_, StoreIdentity> {
        Box::pin(async {
            let front = &self.front;
            let (there, back, fails, renewed) = front.executor.draw(|random| {
                let mut way = || random.micros(0, 3_000);
                (way(), way(), random.chance(20), random.chance(30))
            });
            front.executor.sleep(self.process, there).await;
            if fails {
                return Err(Error::new(ErrorKind::Unavailable, "simulated: the identity cannot be read"));
            }
            if renewed {
                let mut state = lock(&front.state);
                state.identity = state.identity.wrapping_add(1);
            }
            let identity = front.identity();
            front.executor.sleep(self.process, back).await;
            Ok(identity)
        })
    }

    /// Another one now and then, as with new connections.
    fn epoch(&self) -> u64 {
        let changes = self.front.executor.draw(|random| random.chance(3));
        let mut state = lock(&self.front.state);
        state.epoch += u64::from(changes);
        state.epoch
    }
}
