//! The sagas that a worker drives: by name and version. A saga of a version that is not here waits for a worker that
//! has it, and is counted; one whose steps have changed under the same version is not touched either.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{
    Error, ErrorKind, Lease, Onceward, Outcome, Policy, Result, Stopped, Worker, WorkerBuilder, WorkerOptions,
};

use super::Saga;
use super::definition::{Definition, OPERATION, invalid};
use super::drive::drive;
use super::result::Envelope;

/// How long a saga is left to other workers that this one has no code for.
const NO_CODE_PAUSE: Duration = Duration::from_secs(5);

/// The sagas of a worker, several versions of one saga among them. Cheap to clone; clones share their counters.
#[derive(Clone, Default)]
pub struct Sagas {
    sagas: Vec<Saga>,
    counters: Arc<SagaCounters>,
}

/// Counts of the workers of some sagas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaCounts {
    /// Sagas whose steps have all succeeded.
    pub completed: u64,
    /// Sagas that were undone.
    pub undone: u64,
    /// Times that a saga was found to need an operator.
    pub needs_person: u64,
    /// Times that a saga of a version without code here was left to other workers.
    pub unknown_version: u64,
    /// Times that a saga was left alone because its version has other steps here.
    pub changed_definition: u64,
}

#[derive(Debug, Default)]
pub(crate) struct SagaCounters {
    completed: AtomicU64,
    undone: AtomicU64,
    needs_person: AtomicU64,
    unknown_version: AtomicU64,
    changed_definition: AtomicU64,
}

impl SagaCounters {
    pub(crate) fn completed(&self) {
        self.completed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn undone(&self) {
        self.undone.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn needs_person(&self) {
        self.needs_person.fetch_add(1, Ordering::Relaxed);
    }
}

type Versions = BTreeMap<u32, Arc<Definition>>;

impl Sagas {
    /// No saga yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a saga, or another version of one.
    pub fn with_saga(mut self, saga: &Saga) -> Self {
        self.sagas.push(saga.clone());
        self
    }

    /// A worker for these sagas alone. It takes over a saga as soon as the lease of a dead worker has ended.
    pub fn worker(&self, onceward: Onceward) -> Result<Worker> {
        let options = WorkerOptions::default().with_grace(Duration::ZERO);
        self.register(Worker::builder(onceward).with_options(options))?.build()
    }

    /// Adds these sagas to a worker that does other work too. Fails if two of them have the same name and version.
    pub fn register(&self, mut worker: WorkerBuilder) -> Result<WorkerBuilder> {
        let mut names: BTreeMap<&str, (Versions, Arc<Policy>)> = BTreeMap::new();
        for saga in &self.sagas {
            let definition = saga.definition();
            let of_name = names.entry(&definition.name);
            let (versions, _) = of_name.or_insert_with(|| (Versions::new(), definition.policy.clone()));
            if versions.insert(definition.version, definition.clone()).is_some() {
                return Err(invalid(format!(
                    "the saga `{}` is there twice in version {}",
                    definition.name, definition.version
                )));
            }
        }
        for (name, (versions, policy)) in names {
            let (versions, counters) = (Arc::new(versions), self.counters.clone());
            worker = worker.with_operation(&format!("{OPERATION}{name}"), policy, move |lease| {
                let (versions, counters) = (versions.clone(), counters.clone());
                async move { work_on(&versions, &counters, lease).await }
            });
        }
        Ok(worker)
    }

    /// Returns the counts of these sagas' workers in this process.
    pub fn counts(&self) -> SagaCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SagaCounts {
            completed: read(&self.counters.completed),
            undone: read(&self.counters.undone),
            needs_person: read(&self.counters.needs_person),
            unknown_version: read(&self.counters.unknown_version),
            changed_definition: read(&self.counters.changed_definition),
        }
    }
}

/// Drives sagas of one version, for callers that do it themselves.
pub(crate) fn drive_alone(
    definition: &Arc<Definition>,
) -> impl FnOnce(Lease) -> Pin<Box<dyn Future<Output = Result<Outcome, Stopped>> + Send>> + use<> {
    let versions = Versions::from([(definition.version, definition.clone())]);
    // It may have been started by another version: what its receipt says counts.
    |lease| Box::pin(async move { work_on(&versions, &SagaCounters::default(), lease).await })
}

async fn work_on(versions: &Versions, counters: &SagaCounters, lease: Lease) -> Result<Outcome, Stopped> {
    let envelope = lease.input().map(Envelope::decode).transpose().map_err(Stopped::before_effect)?;
    let Some(envelope) = envelope else {
        let error = Error::new(ErrorKind::Damaged, "a saga has no input: it was not started as one");
        return Err(Stopped::before_effect(error));
    };
    let Some(definition) = versions.get(&envelope.version) else {
        counters.unknown_version.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(saga = ?lease.id(), version = envelope.version, "no code for this version of a saga here");
        return Err(Stopped::suspend(NO_CODE_PAUSE));
    };
    if definition.digest != envelope.digest {
        counters.changed_definition.fetch_add(1, Ordering::Relaxed);
        let version = envelope.version;
        tracing::error!(saga = ?lease.id(), version, "a saga was started with other steps under this version");
        return Err(Stopped::suspend(NO_CODE_PAUSE));
    }
    drive(definition, counters, &lease, envelope.input).await
}

impl std::fmt::Debug for Sagas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.sagas).finish()
    }
}
