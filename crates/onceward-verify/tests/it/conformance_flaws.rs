//! Stores with one flaw each: the conformance suite reports each of them. (More flaws are in the library's own table.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onceward::{
    Caps, Choose, Filter, Found, Id, Loaded, Page, Record, Scan, ScanTarget, Signals, State, Store,
    StoreFuture, Swap, Swapped, TextMatch, Watch, take_by_scan,
};
use onceward_verify::conformance;
use onceward_verify::reference::Reference;
use tokio::task::JoinSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    DueOfEveryState,
    DueOfAnotherState,
    MatchesAnotherState,
    DeadIsUnknown,
    IgnoresTheKey,
    PrefixFoldsCase,
    ExactIsPrefix,
    ReadsDoneOnesToo,
    ForgetsCreated,
    UpdatedIsCreated,
    CreatedSurvivesRemoval,
    ListsNestedSteps,
    StepsOfEveryScope,
    EndsWithWriterAtOnce,
    CutsLargeRecords,
    NeverSignals,
    NoBatchInFlight,
    RecordsTooSmall,
}

/// Each flaw, and the check that is expected to name it.
const CAUGHT_BY: [(Flaw, &str); 18] = [
    (Flaw::DueOfEveryState, "scan_due::by_state"),
    (Flaw::DueOfAnotherState, "scan_due::by_state"),
    (Flaw::MatchesAnotherState, "scan_matching::each_filter_filters"),
    (Flaw::DeadIsUnknown, "swaps::every_state_is_kept"),
    (Flaw::IgnoresTheKey, "scan_matching::each_filter_filters"),
    (Flaw::PrefixFoldsCase, "scan_matching::prefixes_are_exact"),
    (Flaw::ExactIsPrefix, "scan_matching::each_filter_filters"),
    (Flaw::ReadsDoneOnesToo, "scan_matching::open_states_are_found_beside_done_ones"),
    (Flaw::ForgetsCreated, "ages::survive_updates"),
    (Flaw::UpdatedIsCreated, "ages::survive_updates"),
    (Flaw::CreatedSurvivesRemoval, "ages::begin_again_after_removal"),
    (Flaw::ListsNestedSteps, "scan_steps::only_those_directly_below"),
    (Flaw::StepsOfEveryScope, "scan_steps::only_those_directly_below"),
    (Flaw::EndsWithWriterAtOnce, "due::with_its_writer_is_not_earlier_while_that_lives"),
    (Flaw::CutsLargeRecords, "bodies::of_every_size"),
    (Flaw::NeverSignals, "signals::come_after_swaps"),
    (Flaw::NoBatchInFlight, "swaps::caps_are_usable"),
    (Flaw::RecordsTooSmall, "swaps::caps_are_usable"),
];

/// Larger than anything but what the suite writes to find out.
const CUT_AT: usize = 2 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_is_named() {
    let mut hunts = JoinSet::new();
    for (flaw, check) in CAUGHT_BY {
        hunts.spawn(async move {
            let make = async || Ok(Arc::new(Flawed::new(flaw)) as Arc<dyn Store>);
            let failure = conformance::first_failure(make, Flawed::new(flaw).caps()).await;
            let named = failure.as_ref().is_some_and(|failure| failure.check == check);
            (!named).then(|| format!("{flaw:?}: not named by {check}, but: {failure:?}"))
        });
    }
    let others: Vec<String> = hunts.join_all().await.into_iter().flatten().collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// A right store behind a flaw.
struct Flawed {
    inner: Arc<dyn Store>,
    flaw: Flaw,
    first_written: Mutex<BTreeMap<Id, Instant>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { inner: Reference::fresh(), flaw, first_written: Mutex::default() }
    }

    fn spoil(&self, id: &Id, found: &mut Found) {
        match self.flaw {
            Flaw::ForgetsCreated => found.age.created = found.age.updated,
            Flaw::UpdatedIsCreated => found.age.updated = found.age.created,
            Flaw::CreatedSurvivesRemoval => {
                let first = self.first_written.lock().unwrap_or_else(PoisonError::into_inner);
                found.age.created = first.get(id).map_or(found.age.created, Instant::elapsed);
            }
            _ => {}
        }
    }

    fn written(&self, swap: &Swap) -> Swap {
        let mut swap = swap.clone();
        if let Some(new) = &mut swap.new {
            self.spoil_record(new);
            let mut first = self.first_written.lock().unwrap_or_else(PoisonError::into_inner);
            first.entry(swap.id.clone()).or_insert_with(Instant::now);
        }
        swap
    }

    fn spoil_record(&self, new: &mut Record) {
        match self.flaw {
            Flaw::DeadIsUnknown if new.state == State::Dead => new.state = State::Unknown,
            Flaw::EndsWithWriterAtOnce if new.ends_with_writer => new.due_in = Some(Duration::ZERO),
            Flaw::CutsLargeRecords => new.bytes.truncate(CUT_AT),
            _ => {}
        }
    }

    fn spoil_filter(&self, filter: &mut Filter) {
        match self.flaw {
            Flaw::MatchesAnotherState => {
                filter.state =
                    filter.state.map(|state| if state == State::Held { State::Done } else { state });
            }
            Flaw::IgnoresTheKey => filter.key = None,
            Flaw::ExactIsPrefix => {
                if let Some(TextMatch::Is(exact)) =
                    filter.operation.take_if(|text| matches!(text, TextMatch::Is(_)))
                {
                    filter.operation = Some(TextMatch::StartsWith(exact));
                }
            }
            _ => {}
        }
    }

    /// Walks over everything and keeps what fits.
    async fn walk(&self, query: &Scan, fits: impl Fn(&Id, &Found) -> bool) -> onceward::Result<Page> {
        let of = ScanTarget::Matching(Filter::default());
        let mut page = self.inner.scan(&query.clone().with_target(of)).await?;
        page.found.retain(|(id, found)| fits(id, found));
        Ok(page)
    }

    async fn spoiled_scan(&self, query: &Scan) -> onceward::Result<Page> {
        match (self.flaw, &query.target) {
            (Flaw::DueOfEveryState, ScanTarget::Due(_)) => {
                self.inner.scan(&query.clone().with_target(ScanTarget::Due(None))).await
            }
            (Flaw::DueOfAnotherState, ScanTarget::Due(Some(State::Waiting))) => {
                self.inner.scan(&query.clone().with_target(ScanTarget::Due(Some(State::Held)))).await
            }
            (
                Flaw::PrefixFoldsCase,
                ScanTarget::Matching(Filter { operation: Some(TextMatch::StartsWith(prefix)), .. }),
            ) => {
                let prefix = prefix.to_ascii_lowercase();
                let ScanTarget::Matching(filter) = &query.target else { unreachable!("matched above") };
                let filter = filter.clone().with_operation(None);
                self.walk(query, |id, found| {
                    filter.matches(id, found.state)
                        && id.operation().to_ascii_lowercase().starts_with(&prefix)
                })
                .await
            }
            (Flaw::ReadsDoneOnesToo, ScanTarget::Matching(filter)) => {
                self.walk(query, |id, found| filter.matches(id, found.state)).await
            }
            (Flaw::ListsNestedSteps, ScanTarget::StepsOf(parent)) => {
                let below = format!("{}#", parent.operation());
                self.walk(query, |id, _| {
                    let same = (id.scope(), id.key()) == (parent.scope(), parent.key());
                    same && id.operation().starts_with(&below)
                })
                .await
            }
            (Flaw::StepsOfEveryScope, ScanTarget::StepsOf(parent)) => {
                let of = |id: &Id| id.parent().map(|id| (id.operation().to_owned(), id.key().to_owned()));
                let wanted = Some((parent.operation().to_owned(), parent.key().to_owned()));
                self.walk(query, |id, _| of(id) == wanted).await
            }
            (_, ScanTarget::Matching(filter)) => {
                let mut filter = filter.clone();
                self.spoil_filter(&mut filter);
                self.inner.scan(&query.clone().with_target(ScanTarget::Matching(filter))).await
            }
            _ => self.inner.scan(query).await,
        }
    }
}

impl Store for Flawed {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let written: Vec<Swap> = batch.iter().map(|swap| self.written(swap)).collect();
            let mut answers = self.inner.swap(&written).await?;
            for (swap, answer) in batch.iter().zip(&mut answers) {
                if let Swapped::Lost(Some(found)) = answer {
                    self.spoil(&swap.id, found);
                }
            }
            Ok(answers)
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let mut loaded = self.inner.load(ids).await?;
            for (id, loaded) in ids.iter().zip(&mut loaded) {
                if let Ok(Some(found)) = loaded {
                    self.spoil(id, found);
                }
            }
            Ok(loaded)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async move {
            let mut page = self.spoiled_scan(query).await?;
            for (id, found) in &mut page.found {
                self.spoil(id, found);
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
        if self.flaw == Flaw::NeverSignals { Some(Box::new(Silence)) } else { self.inner.watch() }
    }

    fn caps(&self) -> Caps {
        let caps = self.inner.caps();
        match self.flaw {
            Flaw::NoBatchInFlight => caps.with_hints(caps.hints.with_batches_in_flight(0)),
            Flaw::RecordsTooSmall => {
                Caps::new(caps.name, caps.promises.with_record_bytes_max(1_000)).with_hints(caps.hints)
            }
            _ => caps,
        }
    }
}

/// Signals that never come.
struct Silence;

impl Signals for Silence {
    fn changed(&mut self) -> std::pin::Pin<Box<dyn Future<Output = Option<Id>> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}
