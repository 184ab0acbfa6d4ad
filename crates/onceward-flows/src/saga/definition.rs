//! The definition of a saga: its name, its version, its steps in order, and their policies.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceward::{
    Backoff, Error, ErrorKind, Fingerprint, KeepInput, OnDuplicate, OnFailure, OnUnknown, Onceward, Policy,
    Result, Retention, Transactions,
};

use super::Saga;
use super::decide::UndoOrder;
use super::perform::{CallWork, ListWork, TransactionWork, Work};
use super::reconcile::{ReconcileHook, Reconciled, UnknownStep};
use super::step::{Step, StepOutput, StepResult};

/// Most steps of one saga, signals and timers included.
pub const STEPS_MAX: usize = 100;
/// Longest name of a saga, a step, a signal or a timer, in bytes.
pub const SAGA_NAME_BYTES_MAX: usize = 64;
/// The scope of sagas that are given none.
pub(crate) const SCOPE: &str = "saga";
/// What the operations of sagas begin with.
pub(crate) const OPERATION: &str = "saga:";

/// How long the receipt of a saga is kept after its end.
const RETENTION: Duration = Duration::from_hours(24 * 30);
/// How long the record of a version is reserved for the process that writes it.
const DEFINITION_LEASE: Duration = Duration::from_secs(1);
/// How long a step may wait for a run of another process before the saga is suspended instead.
const STEP_WAIT: Duration = Duration::from_secs(2);
/// How often a saga as a whole may lose its process. Steps that do that are given up long before; what is suspended
/// loses nothing.
const SAGA_TRIES_MAX: u16 = 100;
/// How long a signal is kept that comes before its saga.
const EARLY_SIGNAL: Duration = Duration::from_hours(24);

pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) parts: Vec<Part>,
    pub(crate) undo_order: UndoOrder,
    pub(crate) deadline: Option<Duration>,
    /// Of the saga itself.
    pub(crate) policy: Arc<Policy>,
    /// Of a signal.
    pub(crate) signal_policy: Arc<Policy>,
    /// Of a timer's beginning and end: writing them twice is harmless.
    pub(crate) mark_policy: Arc<Policy>,
    pub(crate) digest: [u8; 32],
    /// The engine that has recorded it last.
    recorded: Mutex<Option<Onceward>>,
}

/// One line of a definition.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) kind: PartKind,
}

pub(crate) enum PartKind {
    Step(StepPart),
    Each { list: Work, each: StepPart },
    Signal { within: Option<Duration> },
    Timer(Duration),
}

pub(crate) struct StepPart {
    pub(crate) action: Work,
    pub(crate) undo: Option<Work>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) undo_policy: Arc<Policy>,
    pub(crate) reconcile: Option<ReconcileHook>,
    /// Whether it was said to need no undo.
    pub(crate) no_undo: bool,
}

impl Definition {
    /// Whether it is recorded in the store of this engine, as far as is known here.
    pub(crate) fn is_recorded_by(&self, onceward: &Onceward) -> bool {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.as_ref().is_some_and(|recorded| recorded.is_same_engine(onceward))
    }

    pub(crate) fn recorded_by(&self, onceward: &Onceward) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(onceward.clone());
    }

    pub(crate) fn operation(&self) -> String {
        format!("{OPERATION}{}", self.name)
    }

    /// The definition as text, one line for each part: what the same version must not change.
    pub(crate) fn text(&self) -> String {
        text_of(&self.parts)
    }
}

fn text_of(parts: &[Part]) -> String {
    let line = |part: &Part| {
        let undo = |step: &StepPart| if step.undo.is_some() { " undo" } else { "" };
        match &part.kind {
            PartKind::Step(step) => format!("step {}{}", part.name, undo(step)),
            PartKind::Each { each, .. } => format!("each {}{}", part.name, undo(each)),
            PartKind::Signal { .. } => format!("signal {}", part.name),
            PartKind::Timer(_) => format!("timer {}", part.name),
        }
    };
    parts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Builds a [`Saga`]. Steps are run in the order in which they are added; what follows a step is about that step.
#[must_use = "a builder makes nothing until `build` is called"]
pub struct SagaBuilder {
    name: String,
    version: u32,
    parts: Vec<Part>,
    undo_order: UndoOrder,
    deadline: Option<Duration>,
    lease: Option<Duration>,
    retention: Retention,
    early_signals: Duration,
    error: Option<Error>,
}

impl SagaBuilder {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: 1,
            parts: Vec::new(),
            undo_order: UndoOrder::Reverse,
            deadline: None,
            lease: None,
            retention: Retention::For(RETENTION),
            early_signals: EARLY_SIGNAL,
            error: None,
        }
    }

    /// Sets the version, 1 if it is not set. Change it with the steps: running sagas continue with the version that
    /// they were started under, and wait for a worker that has it.
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Adds a step: a call to a participant. It is run once, its result is recorded, and a repeated saga gets the
    /// recorded result. Send [`Step::key`] along, so that the participant can recognise a repeated call.
    pub fn step<F, W, V>(self, name: &str, action: F) -> Self
    where
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = StepResult<V>> + Send + 'static,
        V: Into<StepOutput> + 'static,
    {
        self.part(name, PartKind::Step(StepPart::new(Arc::new(CallWork::new(action)))))
    }

    /// Adds a step that is one transaction of the database that the store is in: what it writes and its receipt commit
    /// together. A stop of any kind rolls it back, so [failed](crate::StepStop::failed) is then the same as
    /// [refused](crate::StepStop::refused), and an error is a try that may be repeated.
    pub fn step_in<T, F, W, V>(self, name: &str, transactions: T, action: F) -> Self
    where
        T: Transactions + 'static,
        F: Fn(Step, T::Tx) -> W + Send + Sync + 'static,
        W: Future<Output = StepResult<V>> + Send + 'static,
        V: Into<StepOutput> + 'static,
        T::Tx: Sync,
    {
        let mut step = StepPart::new(Arc::new(TransactionWork::new(transactions, action)));
        step.policy = repeated(&step.policy);
        self.part(name, PartKind::Step(step))
    }

    /// Adds a step that loops over a list: `list` is run once and its items are recorded, at most
    /// [`ITEMS_MAX`](crate::ITEMS_MAX); then `action` is run for each [item](Step::item), one after the other, each with
    /// a receipt, a key and an undo of its own.
    pub fn each<L, LW, I, F, W, V>(self, name: &str, list: L, action: F) -> Self
    where
        L: Fn(Step) -> LW + Send + Sync + 'static,
        LW: Future<Output = StepResult<Vec<I>>> + Send + 'static,
        I: Into<Bytes> + 'static,
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = StepResult<V>> + Send + 'static,
        V: Into<StepOutput> + 'static,
    {
        let each = StepPart::new(Arc::new(CallWork::new(action)));
        self.part(name, PartKind::Each { list: Arc::new(ListWork::new(list)), each })
    }

    /// Sets the undo of the step before. It is run if the step succeeded or failed and the saga cannot continue; never
    /// if the step was refused or never began. What it returns with an error is tried again; when its tries are used
    /// up, the saga waits for an operator.
    pub fn undo<F, W, V>(self, undo: F) -> Self
    where
        F: Fn(Step) -> W + Send + Sync + 'static,
        W: Future<Output = StepResult<V>> + Send + 'static,
        V: Into<StepOutput> + 'static,
    {
        self.last("undo", |step| step.undo = Some(Arc::new(CallWork::new(undo))))
    }

    /// Sets the undo of the step before, as one transaction: see [`step_in`](Self::step_in).
    pub fn undo_in<T, F, W, V>(self, transactions: T, undo: F) -> Self
    where
        T: Transactions + 'static,
        F: Fn(Step, T::Tx) -> W + Send + Sync + 'static,
        W: Future<Output = StepResult<V>> + Send + 'static,
        V: Into<StepOutput> + 'static,
        T::Tx: Sync,
    {
        self.last("undo_in", |step| {
            step.undo = Some(Arc::new(TransactionWork::new(transactions, undo)));
            step.undo_policy = repeated(&step.undo_policy);
        })
    }

    /// Says that the step before needs no undo, so that what it did stays when the saga is undone. The last part of a
    /// saga needs no undo by itself. If such a step *fails*, an operator has to look after it.
    pub fn no_undo(self) -> Self {
        self.last("no_undo", |step| step.no_undo = true)
    }

    /// Sets what asks the participant about the step before, or its undo, when an outcome is unknown. It is asked before
    /// a person is needed, and again until it knows.
    pub fn reconcile<F, W>(self, ask: F) -> Self
    where
        F: Fn(UnknownStep) -> W + Send + Sync + 'static,
        W: Future<Output = Reconciled> + Send + 'static,
    {
        self.last("reconcile", |step| step.reconcile = Some(Arc::new(move |unknown| Box::pin(ask(unknown)))))
    }

    /// Retries the step before, and its undo, when an outcome is unknown. Only for a participant that honours
    /// [`Step::key`], also while the first copy of the call runs. Without it an unknown outcome is held for an
    /// operator.
    pub fn with_retry_unknown(self) -> Self {
        self.change_policies("with_retry_unknown", |policy| {
            policy.to_builder().with_on_unknown(OnUnknown::Retry).build()
        })
    }

    /// Sets how often the step before, and its undo, are tried, and the pause between tries. Default: 5 times, after 1
    /// second and then twice as long each time.
    pub fn with_tries(self, tries_max: u16, backoff: Backoff) -> Self {
        self.change_policies("with_tries", |policy| {
            policy.to_builder().with_tries_max(tries_max).with_backoff(backoff).build()
        })
    }

    /// Sets how long a call of the step before can still take effect after its process died: a settlement as "not done"
    /// is refused before that.
    pub fn with_late_effect_max(self, late: Duration) -> Self {
        self.change_policies("with_late_effect_max", |policy| {
            policy.to_builder().with_late_effect_max(late).build()
        })
    }

    /// Waits for a signal; its payload is then the [result](Step::result_of) of this name. If it has not come `within`
    /// this time, the saga is undone and a late signal is refused.
    pub fn wait_for(self, signal: &str, within: impl Into<Option<Duration>>) -> Self {
        self.part(signal, PartKind::Signal { within: within.into() })
    }

    /// Waits for this long, by the clock of the store.
    pub fn sleep(self, timer: &str, duration: Duration) -> Self {
        self.part(timer, PartKind::Timer(duration))
    }

    /// Sets how long after its start the saga is undone if it has not come to its end. Undos have no deadline.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the order of undos.
    pub fn with_undo_order(mut self, order: UndoOrder) -> Self {
        self.undo_order = order;
        self
    }

    /// Sets the lease of the saga and of all its steps: after a crash, another worker continues when it has ended.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets how long a saga that has ended is kept. After that, the same key starts a new one.
    pub fn with_retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how long a signal is kept that comes before its saga: 24 hours if it is not set.
    pub fn with_early_signals_kept(mut self, time: Duration) -> Self {
        self.early_signals = time;
        self
    }

    /// Checks everything and builds the saga. Fails if a name is used twice or has other characters than letters,
    /// digits, `.`, `_` and `-`; if there is no step; or if a policy is out of bounds.
    pub fn build(self) -> Result<Saga> {
        if let Some(error) = self.error {
            return Err(error);
        }
        check_name("saga", &self.name)?;
        if self.parts.is_empty() || self.parts.len() > STEPS_MAX {
            let detail = format!("a saga has 1 to {STEPS_MAX} steps, this one has {}", self.parts.len());
            return Err(invalid(detail));
        }
        for (at, part) in self.parts.iter().enumerate() {
            check_name("step", &part.name)?;
            if let PartKind::Step(step) | PartKind::Each { each: step, .. } = &part.kind
                && step.undo.is_none()
                && !step.no_undo
                && at + 1 < self.parts.len()
            {
                return Err(invalid(format!(
                    "the step `{}` has no undo and is not the last one; give it one, or say `no_undo()`",
                    part.name
                )));
            }
            if self.parts[..at].iter().any(|other| other.name == part.name) {
                return Err(invalid(format!("the saga has two steps with the name `{}`", part.name)));
            }
        }
        let (lease, retention) = (self.lease, self.retention);
        let own = |policy: &Policy| {
            let builder = policy.to_builder().with_retention(retention);
            if let Some(lease) = lease { builder.with_lease(lease) } else { builder }.build().map(Arc::new)
        };
        let mut parts = self.parts;
        for part in &mut parts {
            if let PartKind::Step(step) | PartKind::Each { each: step, .. } = &mut part.kind {
                (step.policy, step.undo_policy) = (own(&step.policy)?, own(&step.undo_policy)?);
            }
        }
        let policy = own(&saga_policy()?)?;
        let signal_policy = step_policy().to_builder();
        let signal_policy = signal_policy
            .with_retention(Retention::For(self.early_signals))
            .with_on_unknown(OnUnknown::Retry)
            .build()?;
        let mark_policy = own(&step_policy().to_builder().with_on_unknown(OnUnknown::Retry).build()?)?;
        let text = format!("{}@{}\n{}", self.name, self.version, text_of(&parts));
        Ok(Saga::of(Definition {
            digest: *Fingerprint::of(text.as_bytes()).digest(),
            name: self.name,
            version: self.version,
            parts,
            undo_order: self.undo_order,
            deadline: self.deadline,
            policy,
            signal_policy: Arc::new(signal_policy),
            mark_policy,
            recorded: Mutex::default(),
        }))
    }

    fn part(mut self, name: &str, kind: PartKind) -> Self {
        self.parts.push(Part { name: name.to_owned(), kind });
        self
    }

    /// Changes the step before.
    fn last(mut self, what: &str, change: impl FnOnce(&mut StepPart)) -> Self {
        match self.parts.last_mut().map(|part| &mut part.kind) {
            Some(PartKind::Step(step) | PartKind::Each { each: step, .. }) => change(step),
            _ => {
                self.error.get_or_insert(invalid(format!("`{what}` has no step before it")));
            }
        }
        self
    }

    fn change_policies(mut self, what: &str, change: impl Fn(&Policy) -> Result<Policy>) -> Self {
        let mut failed = None;
        self = self.last(what, |step| {
            for policy in [&mut step.policy, &mut step.undo_policy] {
                match change(policy) {
                    Ok(changed) => *policy = Arc::new(changed),
                    Err(error) => failed = Some(error),
                }
            }
        });
        self.error = self.error.or(failed);
        self
    }
}

impl std::fmt::Debug for SagaBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SagaBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl StepPart {
    fn new(action: Work) -> Self {
        let policy = Arc::new(step_policy());
        Self {
            action,
            undo: None,
            policy: policy.clone(),
            undo_policy: policy,
            reconcile: None,
            no_undo: false,
        }
    }
}

/// The default policy of a step: a recorded end is replayed, and an unknown outcome is held.
pub(crate) fn step_policy() -> Policy {
    let policy = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Wait(STEP_WAIT));
    // An end keeps how often it was tried. The input itself is empty.
    let policy = policy.with_keep_input(KeepInput::WithReceipt);
    policy.with_retention(Retention::For(RETENTION)).build().expect("every value is within its bounds")
}

/// The policy of a step that is a transaction: nothing is left of a try that did not commit, so a retry is always safe.
fn repeated(policy: &Policy) -> Arc<Policy> {
    let policy = policy.to_builder().with_on_unknown(OnUnknown::Retry).build();
    Arc::new(policy.expect("every other value is as it was"))
}

/// The policy of a version's record: every process writes the same, and one that died while it wrote blocks no other
/// for long.
pub(crate) fn definition_policy() -> Policy {
    let policy = step_policy().to_builder().with_retention(Retention::Forever).with_lease(DEFINITION_LEASE);
    policy.with_on_unknown(OnUnknown::Retry).build().expect("every value is within its bounds")
}

/// The policy of a saga: it may be taken over at any time, because each of its steps has a receipt of its own.
pub(crate) fn saga_policy() -> Result<Policy> {
    Policy::queue()
        .to_builder()
        .with_lease(Policy::http().lease())
        .with_on_failure(OnFailure::Replay)
        .with_tries_max(SAGA_TRIES_MAX)
        .with_backoff(Backoff::new(Duration::from_secs(1), Duration::from_secs(60)))
        .with_keep_input(KeepInput::WithReceipt)
        .with_retention(Retention::For(RETENTION))
        .build()
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > SAGA_NAME_BYTES_MAX || !name.bytes().all(is_part) {
        return Err(invalid(format!(
            "`{name}` is no name of a {what}: 1 to {SAGA_NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`"
        )));
    }
    Ok(())
}

pub(crate) fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::Invalid, detail)
}
