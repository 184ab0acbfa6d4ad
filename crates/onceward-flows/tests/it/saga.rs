//! Sagas on the memory store: endings, undos, signals, timers, versions, and everything that goes wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Backoff, Clock, Enqueued, Limits, Onceward, State};
use onceward_flows::{
    Direction, Ended, Reconciled, Saga, SagaBuilder, SagaChange, SagaState, SagaView, Sagas, SettleStep,
    Signalled, Step, StepResult, StepStop, StoredSagas, UndoOrder, UnknownStep,
};
use onceward_stores::memory::{MemoryStore, MemoryTransactions, MemoryTx};

pub const SHORT: Duration = Duration::from_millis(10);
pub const STUCK_AFTER: Duration = Duration::from_secs(20);

/// What the steps have done, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|line| *line == what).count()
    }

    /// A step that notes its name and ends like this.
    pub fn step(
        &self,
        ends: fn(&Step) -> StepResult<String>,
    ) -> impl Fn(Step) -> Ready + Send + Sync + use<> {
        let log = self.clone();
        move |step: Step| {
            let undo = if step.direction() == Direction::Undo { "undo " } else { "" };
            log.add(format!("{undo}{}", step.name()));
            std::future::ready(ends(&step))
        }
    }
}

pub type End = fn(&Step) -> StepResult<String>;
pub type Ready = std::future::Ready<StepResult<String>>;

#[expect(clippy::unnecessary_wraps, reason = "it is one of several ends")]
pub fn ok(step: &Step) -> StepResult<String> {
    Ok(format!("{} done", step.name()))
}

pub fn quick() -> Backoff {
    Backoff::new(SHORT, SHORT)
}

/// Three steps with undos; the last one ends like this.
pub fn order(log: &Log, last: fn(&Step) -> StepResult<String>) -> SagaBuilder {
    Saga::builder("order")
        .step("reserve", log.step(ok))
        .undo(log.step(ok))
        .step("charge", log.step(ok))
        .undo(log.step(ok))
        .step("ship", log.step(last))
        .undo(log.step(ok))
        .with_tries(2, quick())
        .with_lease(Duration::from_millis(300))
}

/// Works on sagas until this one is as wanted.
pub async fn work_until(
    onceward: &Onceward,
    sagas: &Sagas,
    saga: &Saga,
    key: &str,
    wanted: impl Fn(&SagaView) -> bool,
) -> SagaView {
    let worker = sagas.worker(onceward.clone()).unwrap();
    let looking = async {
        loop {
            if let Some(view) = saga.view(onceward, key).await.unwrap()
                && wanted(&view)
            {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = worker.run_until(std::future::pending()) => unreachable!(),
        view = tokio::time::timeout(STUCK_AFTER, looking) => match view {
            Ok(view) => view,
            Err(elapsed) => panic!("stuck, {elapsed}: {:#?}", saga.view(onceward, key).await),
        },
    }
}

pub async fn work(onceward: &Onceward, saga: &Saga, key: &str) -> SagaView {
    let is_over = |view: &SagaView| view.ended.is_some() || matches!(view.state, SagaState::NeedsPerson(_));
    work_until(onceward, &Sagas::new().with_saga(saga), saga, key, is_over).await
}

#[tokio::test]
async fn every_step_runs_once_and_its_result_is_recorded() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = order(&log, |step| {
        assert_eq!(step.result_of("reserve").unwrap(), "reserve done");
        assert_eq!(step.input(), "input");
        Ok("shipped".into())
    });
    let saga = saga.build().unwrap();
    assert_eq!(saga.start(&onceward, "81", "input").await.unwrap(), Enqueued::Accepted);
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.state, SagaState::Completed);
    assert_eq!(view.ended, Some(Ended::Succeeded("shipped".into())));
    assert_eq!(log.all(), ["reserve", "charge", "ship"]);
    let steps: Vec<_> = view.steps.iter().map(|step| (step.name.as_str(), step.ended.clone())).collect();
    assert_eq!(steps[1], ("charge", Some(Ended::Succeeded("charge done".into()))));
    // The same again is the same saga; another input is refused.
    let again = saga.start(&onceward, "81", "input").await.unwrap();
    assert_eq!(again, Enqueued::AlreadyThere(State::Done));
    assert!(matches!(saga.start(&onceward, "81", "other").await.unwrap(), Enqueued::Refused(_)));
}

#[tokio::test]
async fn what_was_refused_is_not_undone_and_what_failed_is() {
    let ends: [(End, &[&str]); 2] = [
        (|_| Err(StepStop::refused("no")), &["undo charge", "undo reserve"]),
        (|_| Err(StepStop::failed("no")), &["undo ship", "undo charge", "undo reserve"]),
    ];
    for (end, undone) in ends {
        let (onceward, log) = (onceward_stores::in_memory(), Log::default());
        let saga = order(&log, end).build().unwrap();
        saga.start(&onceward, "81", "").await.unwrap();
        let view = work(&onceward, &saga, "81").await;
        assert_eq!(view.ended, Some(Ended::Undone("ship: no".into())));
        assert_eq!(log.all()[3..], *undone);
    }
}

#[tokio::test]
async fn undos_run_in_the_declared_order_or_reversed() {
    for (order_of, expected) in [
        (UndoOrder::Declared, ["undo reserve", "undo charge"]),
        (UndoOrder::Reverse, ["undo charge", "undo reserve"]),
    ] {
        let (onceward, log) = (onceward_stores::in_memory(), Log::default());
        let saga = order(&log, |_| Err(StepStop::refused("no"))).with_undo_order(order_of).build().unwrap();
        saga.start(&onceward, "81", "").await.unwrap();
        work(&onceward, &saga, "81").await;
        assert_eq!(log.all()[3..], expected, "{order_of:?}");
    }
}

/// Unknown is neither failed nor refused: nothing is undone, and a person decides.
#[tokio::test]
async fn an_unknown_step_waits_for_a_person() {
    let settled = [
        // The last step has succeeded: the saga is complete, and the wish to undo it came too late.
        (SettleStep::Done("by hand".into()), Ended::Succeeded("by hand".into()), &[][..]),
        (
            SettleStep::Refused("it never came".into()),
            Ended::Undone("a person".into()),
            &["undo charge", "undo reserve"],
        ),
    ];
    for (settle, expected, undone) in settled {
        let (onceward, log) = (onceward_stores::in_memory(), Log::default());
        let saga = order(&log, |_| Err(StepStop::unknown("no answer"))).build().unwrap();
        saga.start(&onceward, "81", "").await.unwrap();
        let view = work(&onceward, &saga, "81").await;
        let SagaState::NeedsPerson(needs) = view.state else { panic!("{view:#?}") };
        assert_eq!((needs.step.as_deref(), needs.state), (Some("ship"), State::Unknown));
        assert!(needs.reason.contains("no answer"), "{needs:?}");
        assert_eq!(log.all(), ["reserve", "charge", "ship"]);
        let id = saga.id("81").unwrap();
        // Not even a person undoes it on a guess.
        StoredSagas::new(&onceward).undo(&id, "a person").await.unwrap();
        let change = async |settle| {
            StoredSagas::new(&onceward).settle(&id, "ship", Direction::Action, settle).await.unwrap()
        };
        tokio::time::timeout(SHORT * 10, saga.worker(&onceward).unwrap().run_until(std::future::pending()))
            .await
            .unwrap_err();
        assert_eq!(log.count("undo charge"), 0, "undone on a guess");
        assert_eq!(change(settle.clone()).await, SagaChange::Applied);
        assert_eq!(change(settle).await, SagaChange::NothingToDo);
        let view =
            work_until(&onceward, &Sagas::new().with_saga(&saga), &saga, "81", |view| view.ended.is_some())
                .await;
        assert_eq!(view.ended, Some(expected));
        assert_eq!(log.all()[3..], *undone);
    }
}

/// Where the participant honours the key, an unknown outcome is tried again under the same key.
#[tokio::test]
async fn an_unknown_step_is_tried_again_where_the_key_is_honoured() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let keys = Log::default();
    let sent = keys.clone();
    let charge = move |step: Step| {
        sent.add(step.key().unwrap().to_string());
        let answer =
            if step.tries() == 1 { Err(StepStop::unknown("no answer")) } else { Ok("paid".to_owned()) };
        std::future::ready(answer)
    };
    let saga = Saga::builder("order")
        .step("charge", charge)
        .undo(log.step(ok))
        .with_retry_unknown()
        .with_tries(3, quick());
    let saga = saga.build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    assert_eq!(work(&onceward, &saga, "81").await.ended, Some(Ended::Succeeded("paid".into())));
    let keys = keys.all();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1], "one intent, one key");
    assert_eq!(log.all().len(), 0);
}

#[tokio::test]
async fn tries_that_never_began_end_as_a_refusal() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = order(&log, |_| Err(StepStop::retry("no connection"))).build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("ship: given up after 2 tries: no connection".into())));
    assert_eq!(log.count("ship"), 2);
    assert_eq!(log.count("undo ship"), 0);
}

/// An undo that fails is tried again; then the saga says that it needs a person; and goes on where it was.
#[tokio::test]
async fn an_undo_that_fails_or_panics_needs_a_person_and_the_saga_says_so() {
    let undos: [fn(&Step) -> StepResult<String>; 2] =
        [|_| Err(StepStop::failed("bank closed")), |_| panic!("a bug in the undo")];
    for (at, undo) in undos.into_iter().enumerate() {
        let (onceward, log) = (onceward_stores::in_memory(), Log::default());
        let fixed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (flag, noted) = (fixed.clone(), log.clone());
        let refund = move |step: Step| {
            noted.add("undo charge");
            let end = if flag.load(std::sync::atomic::Ordering::SeqCst) { ok(&step) } else { undo(&step) };
            std::future::ready(end)
        };
        let saga = Saga::builder("order")
            .step("reserve", log.step(ok))
            .undo(log.step(ok))
            .step("charge", log.step(ok))
            .undo(refund)
            .with_tries(2, quick())
            .step("ship", log.step(|_| Err(StepStop::refused("no"))))
            .build()
            .unwrap();
        saga.start(&onceward, "81", "").await.unwrap();
        let view = work(&onceward, &saga, "81").await;
        let SagaState::NeedsPerson(needs) = view.state else { panic!("{view:#?}") };
        assert_eq!((needs.step.as_deref(), needs.direction), (Some("charge"), Direction::Undo));
        assert_eq!(log.count("undo reserve"), 0, "the order of undos is kept");
        fixed.store(true, std::sync::atomic::Ordering::SeqCst);
        let id = saga.id("81").unwrap();
        if at == 0 {
            assert_eq!(log.count("undo charge"), 2);
            assert_eq!(StoredSagas::new(&onceward).retry(&id, None).await.unwrap(), SagaChange::Applied);
        } else {
            // Nobody knows what it did before it panicked.
            assert_eq!(needs.state, State::Unknown);
            let stored = StoredSagas::new(&onceward);
            let settle = stored.settle(&id, "charge", Direction::Undo, SettleStep::NotDone);
            assert_eq!(settle.await.unwrap(), SagaChange::Applied);
        }
        let ended = |view: &SagaView| view.ended.is_some();
        work_until(&onceward, &Sagas::new().with_saga(&saga), &saga, "81", ended).await;
        assert_eq!(log.all().last().unwrap(), "undo reserve");
    }
}

/// Undos are shielded: the worker's future is dropped during one, and it ends all the same.
#[tokio::test]
async fn a_dropped_worker_does_not_cancel_a_step() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let noted = log.clone();
    let release = move |_: Step| {
        let (begun, noted) = (begun.clone(), noted.clone());
        async move {
            begun.send(()).unwrap();
            tokio::time::sleep(SHORT * 5).await;
            noted.add("released");
            Ok(())
        }
    };
    let saga = Saga::builder("order")
        .step("reserve", log.step(ok))
        .undo(release)
        .step("charge", log.step(|_| Err(StepStop::refused("no"))))
        .with_lease(Duration::from_millis(200))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let worker = saga.worker(&onceward).unwrap();
    tokio::select! {
        () = worker.run_until(std::future::pending()) => unreachable!(),
        _ = has_begun.recv() => {}
    }
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("charge: no".into())));
    assert_eq!(log.count("released"), 1);
    assert!(has_begun.try_recv().is_err(), "it was begun twice");
}

#[tokio::test]
async fn a_person_undoes_a_saga_that_waits() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = Saga::builder("order")
        .step("reserve", log.step(ok))
        .undo(log.step(ok))
        .wait_for("approved", None)
        .step("ship", log.step(ok))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let sagas = Sagas::new().with_saga(&saga);
    let reserved = |view: &SagaView| view.state == SagaState::Waiting && view.steps[0].ended.is_some();
    work_until(&onceward, &sagas, &saga, "81", reserved).await;
    let id = saga.id("81").unwrap();
    assert_eq!(
        StoredSagas::new(&onceward).undo(&id, "the customer called").await.unwrap(),
        SagaChange::Applied
    );
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("the customer called".into())));
    assert_eq!(view.steps.iter().find(|step| step.name == "ship").unwrap().closed, Some("undone"));
    assert_eq!(log.all(), ["reserve", "undo reserve"]);
    assert_eq!(StoredSagas::new(&onceward).undo(&id, "again").await.unwrap(), SagaChange::Ended);
}

#[tokio::test]
async fn a_signal_counts_once_also_before_its_saga() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = Saga::builder("order")
        .wait_for("approved", Duration::from_secs(3600))
        .step(
            "ship",
            log.step(|step| Ok(String::from_utf8_lossy(step.result_of("approved").unwrap()).into())),
        )
        .build()
        .unwrap();
    // Before its saga.
    let signal = async |key: &'static str, payload: &'static str| {
        saga.signal(&onceward, key, "approved", payload).await
    };
    assert_eq!(signal("81", "by Ada").await.unwrap(), Signalled::Early);
    assert_eq!(signal("81", "by Ada").await.unwrap(), Signalled::Repeated);
    let error = signal("81", "by Bob").await.unwrap_err();
    assert!(error.to_string().contains("with another payload"), "{error}");
    let error = saga.signal(&onceward, "81", "aproved", "").await.unwrap_err();
    assert!(error.to_string().contains("it waits for: approved"), "{error}");
    saga.start(&onceward, "81", "").await.unwrap();
    assert_eq!(work(&onceward, &saga, "81").await.ended, Some(Ended::Succeeded("by Ada".into())));
    // While it waits: it is woken, and does not sleep to the end of its time.
    saga.start(&onceward, "82", "").await.unwrap();
    let sagas = Sagas::new().with_saga(&saga);
    work_until(&onceward, &sagas, &saga, "82", |view| view.state == SagaState::Waiting && view.tries == 0)
        .await;
    assert_eq!(signal("82", "by Bob").await.unwrap(), Signalled::Delivered);
    assert_eq!(work(&onceward, &saga, "82").await.ended, Some(Ended::Succeeded("by Bob".into())));
}

#[tokio::test]
async fn a_signal_that_does_not_come_undoes_and_a_late_one_is_refused() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = Saga::builder("order")
        .step("reserve", log.step(ok))
        .undo(log.step(ok))
        .wait_for("approved", SHORT)
        .step("ship", log.step(ok))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("approved: no signal came within 10ms".into())));
    let error = saga.signal(&onceward, "81", "approved", "").await.unwrap_err();
    assert!(error.to_string().contains("too late"), "{error}");
    assert_eq!(log.all(), ["reserve", "undo reserve"]);
}

/// A clock that the test sets.
struct JumpingClock(Mutex<Duration>);

impl Clock for JumpingClock {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.lock().unwrap().as_micros()).unwrap()
    }
}

/// A jump over the timer ends it, once; and the deadline is by the same clock.
#[tokio::test]
async fn a_clock_that_jumps_ends_timers_and_deadlines_once() {
    let clock = Arc::new(JumpingClock(Mutex::new(Duration::from_secs(1_000_000))));
    let store = MemoryStore::new_with_clock(clock.clone());
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let log = Log::default();
    let saga = |name: &str| {
        let saga = Saga::builder(name).step("reserve", log.step(ok)).undo(log.step(ok));
        saga.sleep("cool-off", Duration::from_secs(86_400)).step("ship", log.step(ok))
    };
    let patient = saga("patient").build().unwrap();
    let late = saga("late").with_deadline(Duration::from_secs(3_600)).build().unwrap();
    let sagas = Sagas::new().with_saga(&patient).with_saga(&late);
    for saga in [&patient, &late] {
        saga.start(&onceward, "81", "").await.unwrap();
        let sleeps = |view: &SagaView| {
            view.state == SagaState::Waiting
                && view.steps.len() >= 2
                && view.tries == 0
                && view.steps.iter().any(|step| step.name == "timer:cool-off" && step.state.is_some())
        };
        work_until(&onceward, &sagas, saga, "81", sleeps).await;
    }
    assert_eq!(log.count("ship"), 0);
    *clock.0.lock().unwrap() += Duration::from_secs(86_400 * 365 * 10);
    for (saga, ended) in [
        (&patient, Ended::Succeeded("ship done".into())),
        (&late, Ended::Undone("it did not end within 3600s".into())),
    ] {
        let view = work_until(&onceward, &sagas, saga, "81", |view| view.ended.is_some()).await;
        assert_eq!(view.ended, Some(ended));
    }
    assert_eq!((log.count("ship"), log.count("undo reserve")), (1, 1));
}

#[tokio::test]
async fn a_step_that_loops_undoes_each_item() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let (sent, unsent) = (log.clone(), log.clone());
    let item = |step: &Step| String::from_utf8_lossy(step.item().unwrap()).into_owned();
    let saga = Saga::builder("mail")
        .each(
            "mail",
            |_| async { Ok(vec!["ada", "bob", "eve"]) },
            move |step| {
                let to = item(&step);
                sent.add(format!("to {to}"));
                std::future::ready(if to == "eve" { Err(StepStop::refused("unknown")) } else { Ok(to) })
            },
        )
        .undo(move |step: Step| {
            unsent.add(format!("sorry {}", String::from_utf8_lossy(step.result().unwrap())));
            std::future::ready(Ok(()))
        })
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("mail/2: unknown".into())));
    assert_eq!(log.all(), ["to ada", "to bob", "to eve", "sorry bob", "sorry ada"]);
}

#[tokio::test]
async fn a_result_beyond_the_bound_is_a_failure_that_is_undone() {
    let store = Arc::new(MemoryStore::new());
    let limits = Limits::default().with_body_bytes_max(1024);
    let onceward = Onceward::builder(store).accept_volatile().with_limits(limits).build().unwrap();
    let log = Log::default();
    let saga = order(&log, |_| Ok("x".repeat(1024))).build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    let Some(Ended::Undone(reason)) = view.ended else { panic!("{view:#?}") };
    assert!(reason.starts_with("ship: the step returned 1024 bytes and at most 1023"), "{reason}");
    assert_eq!(log.all()[3..], ["undo ship", "undo charge", "undo reserve"]);
}

#[tokio::test]
async fn a_saga_is_driven_only_by_its_own_version() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let first = Saga::builder("order").step("reserve", log.step(ok)).build().unwrap();
    let changed = Saga::builder("order").step("charge", log.step(ok)).build().unwrap();
    let second = Saga::builder("order").with_version(2).step("charge", log.step(ok)).build().unwrap();
    first.start(&onceward, "81", "").await.unwrap();
    // The same version with other steps starts nothing and drives nothing.
    let error = changed.start(&onceward, "82", "").await.unwrap_err();
    assert!(error.to_string().contains("give the changed one a new version"), "{error}");
    for (saga, counted) in [(&changed, (0, 1)), (&second, (1, 0))] {
        onceward.start_now(&first.id("81").unwrap()).await.unwrap();
        let sagas = Sagas::new().with_saga(saga);
        sagas.worker(onceward.clone()).unwrap().run_once().await.unwrap();
        let counts = sagas.counts();
        assert_eq!((counts.unknown_version, counts.changed_definition), counted);
    }
    assert_eq!(log.all().len(), 0);
    // Started again under the new version, it is the same saga.
    let again = second.start(&onceward, "81", "").await.unwrap();
    assert_eq!(again, Enqueued::AlreadyThere(State::Waiting));
    let both = Sagas::new().with_saga(&first).with_saga(&second);
    onceward.start_now(&first.id("81").unwrap()).await.unwrap();
    work_until(&onceward, &both, &first, "81", |view| view.ended.is_some()).await;
    assert_eq!(log.all(), ["reserve"]);
    assert!(both.with_saga(&second).worker(onceward).is_err());
}

/// Steps that are transactions: rolled back with their refusal, committed with their result.
#[tokio::test]
async fn steps_in_transactions_commit_with_their_receipts() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let log = Log::default();
    let write = |what: &'static str, end: fn(u16) -> StepResult<&'static str>| {
        let log = log.clone();
        move |step: Step, tx: MemoryTx| {
            let log = log.clone();
            async move {
                tx.on_commit(move || log.add(what))?;
                end(step.tries())
            }
        }
    };
    let saga = Saga::builder("order")
        .step_in("reserve", transactions.clone(), write("reserve", |_| Ok("seat")))
        .undo_in(transactions.clone(), write("release", |_| Ok("")))
        .step_in(
            "flaky",
            transactions.clone(),
            write("flaky", |tries| if tries < 2 { Err(StepStop::retry("later")) } else { Ok("") }),
        )
        .no_undo()
        .with_tries(3, quick())
        .step_in("charge", transactions, write("charge", |_| Err(StepStop::failed("declined"))))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("charge: declined".into())));
    assert_eq!(log.all(), ["reserve", "flaky", "release"]);
}

#[test]
fn a_definition_that_cannot_be_run_is_refused() {
    let step = |_: Step| async { Ok(()) };
    Saga::builder("order").step("a", step).no_undo().step("b", step).build().unwrap();
    let long = "x".repeat(65);
    for saga in [
        Saga::builder("order"),
        Saga::builder("or#der").step("a", step),
        Saga::builder("order").step("a", step).undo(step).step("a", step),
        // An undo is forgotten easily.
        Saga::builder("order").step("a", step).step("b", step),
        Saga::builder("order").step("a", step).wait_for("b", None),
        Saga::builder("order").step("a/undo", step),
        Saga::builder("order").step(&long, step),
        Saga::builder("order").undo(step).step("a", step),
        Saga::builder("order").sleep("a", SHORT).with_retry_unknown(),
        Saga::builder("order").step("a", step).with_tries(0, quick()),
    ] {
        assert!(saga.build().is_err());
    }
}

#[tokio::test]
async fn an_undo_names_what_its_participant_must_close() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let keys = Log::default();
    let (sent, closed) = (keys.clone(), keys.clone());
    let saga = Saga::builder("order")
        .step("charge", move |step: Step| {
            sent.add(format!("\"{}\"; operation=\"POST /charges\"", step.key().unwrap()));
            std::future::ready(Ok(()))
        })
        .undo(move |step: Step| {
            closed.add(step.closes("POST /charges").unwrap().to_string());
            assert_ne!(step.key().unwrap(), step.closes("").unwrap().key);
            std::future::ready(Ok(()))
        })
        .step("ship", log.step(|_| Err(StepStop::refused("no"))))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    work(&onceward, &saga, "81").await;
    let keys = keys.all();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

/// To have dead steps tried again says nothing about what the former tries did.
#[tokio::test]
async fn a_dead_step_that_is_retried_and_then_undone_is_undone() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let answers = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (noted, does) = (log.clone(), answers.clone());
    let charge = move |_: Step| {
        noted.add("charge");
        let answers = does.load(std::sync::atomic::Ordering::SeqCst);
        std::future::ready(if answers { Ok("paid") } else { Err(StepStop::unknown("no answer")) })
    };
    let saga = Saga::builder("order").step("charge", charge).undo(log.step(ok));
    let saga = saga.with_retry_unknown().with_tries(2, quick()).step("ship", log.step(ok)).build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    let SagaState::NeedsPerson(needs) = view.state else { panic!("{view:#?}") };
    assert_eq!(needs.state, State::Dead);
    assert_eq!(log.count("charge"), 2);
    let (stored, id) = (StoredSagas::new(&onceward), saga.id("81").unwrap());
    assert_eq!(stored.retry(&id, None).await.unwrap(), SagaChange::Applied);
    assert_eq!(stored.undo(&id, "the customer called").await.unwrap(), SagaChange::Applied);
    let view = stored.show(&id).await.unwrap().unwrap();
    assert_eq!(view.steps[0].closed, None, "it may have taken effect");
    answers.store(true, std::sync::atomic::Ordering::SeqCst);
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("the customer called".into())));
    assert_eq!(log.all(), ["charge", "charge", "charge", "undo charge"]);
}

/// Nor does a participant that refuses further tries say anything about the former ones.
#[tokio::test]
async fn a_dead_step_that_is_retried_is_not_refused_for_want_of_connections() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let noted = log.clone();
    let charge = move |_: Step| {
        noted.add("charge");
        let is_former = noted.count("charge") <= 2;
        std::future::ready(Err::<(), _>(if is_former {
            StepStop::unknown("no answer")
        } else {
            StepStop::retry("no connection")
        }))
    };
    let saga = Saga::builder("order").step("charge", charge).with_retry_unknown().with_tries(2, quick());
    let saga = saga.build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    work(&onceward, &saga, "81").await;
    let stored = StoredSagas::new(&onceward);
    assert_eq!(stored.retry(&saga.id("81").unwrap(), None).await.unwrap(), SagaChange::Applied);
    let dead = |view: &SagaView| matches!(view.state, SagaState::NeedsPerson(_)) && log.count("charge") == 4;
    let view = work_until(&onceward, &Sagas::new().with_saga(&saga), &saga, "81", dead).await;
    assert_eq!(view.steps[0].state, Some(State::Dead), "{view:#?}");
}

/// What a failed step without an undo has left behind is looked after by a person, who then says so.
#[tokio::test]
async fn a_failed_step_without_undo_needs_a_person() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = Saga::builder("order")
        .step("charge", log.step(ok))
        .undo(log.step(ok))
        .step("mail", log.step(|_| Err(StepStop::failed("half of them went out"))))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    let SagaState::NeedsPerson(needs) = view.state else { panic!("{view:#?}") };
    assert_eq!((needs.step.as_deref(), needs.direction), (Some("mail"), Direction::Undo));
    assert!(needs.reason.contains("half of them went out"), "{needs:?}");
    let (stored, id) = (StoredSagas::new(&onceward), saga.id("81").unwrap());
    let settle = |step: &'static str| {
        stored.settle(&id, step, Direction::Undo, SettleStep::Done("we wrote to them".into()))
    };
    assert_eq!(settle("charge").await.unwrap(), SagaChange::NothingToDo, "that one has an undo");
    assert_eq!(settle("mail").await.unwrap(), SagaChange::Applied);
    let ended = |view: &SagaView| view.ended.is_some();
    let view = work_until(&onceward, &Sagas::new().with_saga(&saga), &saga, "81", ended).await;
    assert_eq!(view.ended, Some(Ended::Undone("mail: half of them went out".into())));
    assert_eq!(log.all(), ["charge", "mail", "undo charge"]);
}

#[tokio::test]
async fn a_person_settles_an_unknown_step_as_failed_and_it_is_undone() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let saga = order(&log, |_| Err(StepStop::unknown("no answer"))).build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    work(&onceward, &saga, "81").await;
    let stored = StoredSagas::new(&onceward);
    let settle = SettleStep::Failed("it was begun".into());
    let settled = stored.settle(&saga.id("81").unwrap(), "ship", Direction::Action, settle).await;
    assert_eq!(settled.unwrap(), SagaChange::Applied);
    let ended = |view: &SagaView| view.ended.is_some();
    let view = work_until(&onceward, &Sagas::new().with_saga(&saga), &saga, "81", ended).await;
    assert_eq!(view.ended, Some(Ended::Undone("ship: it was begun".into())));
    assert_eq!(log.all()[3..], ["undo ship", "undo charge", "undo reserve"]);
    assert!(view.steps.iter().all(|step| step.tries == Some(1)), "{:#?}", view.steps);
}

/// The participant is asked before a person is.
#[tokio::test]
async fn a_hook_reconciles_an_unknown_step() {
    for (said, expected, charges) in [
        (Reconciled::Done("found".into()), "found", 1),
        // It is tried again, and then succeeds.
        (Reconciled::NotDone, "paid", 2),
    ] {
        let (onceward, log) = (onceward_stores::in_memory(), Log::default());
        let noted = log.clone();
        let charge = move |step: Step| {
            noted.add(format!("charge {}", step.key().unwrap()));
            let is_first = noted.all().len() == 1;
            std::future::ready(if is_first { Err(StepStop::unknown("no answer")) } else { Ok("paid") })
        };
        let asked = log.clone();
        let saga = Saga::builder("order").step("charge", charge).reconcile(move |step: UnknownStep| {
            assert_eq!(asked.all(), [format!("charge {}", step.key().unwrap())]);
            std::future::ready(said.clone())
        });
        let saga = saga.build().unwrap();
        saga.start(&onceward, "81", "").await.unwrap();
        let ended = |view: &SagaView| view.ended.is_some();
        let sagas = Sagas::new().with_saga(&saga);
        let view = work_until(&onceward, &sagas, &saga, "81", ended).await;
        assert_eq!(view.ended, Some(Ended::Succeeded(expected.into())));
        assert_eq!(log.all().len(), charges);
        assert_eq!(sagas.counts().needs_person, 0);
    }
}

/// What can still take effect is not believed to have not happened.
#[tokio::test]
async fn a_hook_is_not_believed_while_the_call_may_still_take_effect() {
    let (onceward, log) = (onceward_stores::in_memory(), Log::default());
    let asked = Log::default();
    let noted = asked.clone();
    let saga = Saga::builder("order")
        .step("charge", log.step(|_| Err(StepStop::unknown("no answer"))))
        .with_late_effect_max(Duration::from_secs(3_600))
        .reconcile(move |_| {
            noted.add("asked");
            std::future::ready(Reconciled::NotDone)
        })
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let sagas = Sagas::new().with_saga(&saga);
    work_until(&onceward, &sagas, &saga, "81", |_| asked.count("asked") > 0).await;
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    assert_eq!(view.steps[0].state, Some(State::Unknown), "{view:#?}");
    assert_eq!(log.count("charge"), 1);
}

/// A saga exists if the transaction that starts it commits.
#[tokio::test]
async fn a_saga_starts_with_the_transaction_that_starts_it() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let log = Log::default();
    let saga = Saga::builder("order").step("reserve", log.step(ok)).build().unwrap();
    saga.record(&onceward).await.unwrap();
    for (key, commits) in [("rolled-back", false), ("committed", true)] {
        let id = onceward::Id::new("shop", "POST /orders", key).unwrap();
        let ask = onceward::Ask::new(id, onceward::Fingerprint::of(b""), onceward::Policy::http());
        let (starting, engine) = (saga.clone(), onceward.clone());
        let ran = onceward.transact(&transactions, ask, async |_, mut tx: MemoryTx| {
            let started = starting.start_in(&engine, &mut tx, key, "").await?;
            assert_eq!(started, Enqueued::Accepted);
            if commits {
                return Ok(onceward::Outcome::succeeded("ordered"));
            }
            Err(onceward::Stopped::before_effect("the order is not placed"))
        });
        assert_eq!(ran.await.is_ok(), commits);
        assert_eq!(saga.view(&onceward, key).await.unwrap().is_some(), commits);
    }
    work(&onceward, &saga, "committed").await;
    assert_eq!(log.all(), ["reserve"]);
}

/// A transaction that panics is rolled back and tried again, forward and backward.
#[tokio::test]
async fn a_transaction_that_panics_is_tried_again() {
    let store = MemoryStore::new();
    let transactions = MemoryTransactions::new(&store);
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let log = Log::default();
    let flaky = |what: &'static str| {
        let log = log.clone();
        move |step: Step, tx: MemoryTx| {
            let log = log.clone();
            async move {
                tx.on_commit(move || log.add(what))?;
                assert!(step.tries() > 1, "a bug");
                StepResult::Ok("")
            }
        }
    };
    let saga = Saga::builder("order")
        .step_in("reserve", transactions.clone(), flaky("reserve"))
        .undo_in(transactions, flaky("release"))
        .with_tries(3, quick())
        .step("ship", log.step(|_| Err(StepStop::refused("no"))))
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let view = work(&onceward, &saga, "81").await;
    assert_eq!(view.ended, Some(Ended::Undone("ship: no".into())), "{view:#?}");
    assert_eq!(log.all(), ["reserve", "ship", "release"]);
}

/// A clock that goes back delays a timer; it does not end it twice, and loses nothing.
#[tokio::test]
async fn a_clock_that_jumps_back_ends_a_timer_once() {
    let clock = Arc::new(JumpingClock(Mutex::new(Duration::from_secs(1_000_000))));
    let store = MemoryStore::new_with_clock(clock.clone());
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let log = Log::default();
    let saga = Saga::builder("order").sleep("cool-off", Duration::from_secs(60)).step("ship", log.step(ok));
    let saga = saga.build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let worker = saga.worker(&onceward).unwrap();
    worker.run_once().await.unwrap();
    *clock.0.lock().unwrap() -= Duration::from_secs(500);
    onceward.start_now(&saga.id("81").unwrap()).await.unwrap();
    worker.run_once().await.unwrap();
    assert_eq!(log.count("ship"), 0);
    *clock.0.lock().unwrap() += Duration::from_secs(3_600);
    let ended = |view: &SagaView| view.ended.is_some();
    work_until(&onceward, &Sagas::new().with_saga(&saga), &saga, "81", ended).await;
    assert_eq!(log.all(), ["ship"]);
}

/// A signal that comes before its saga is forgotten after a bounded time; another one may then come.
#[tokio::test]
async fn an_early_signal_expires() {
    let clock = Arc::new(JumpingClock(Mutex::new(Duration::from_secs(1_000_000))));
    let store = MemoryStore::new_with_clock(clock.clone());
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let log = Log::default();
    let saga = Saga::builder("order").wait_for("approved", None).step("ship", log.step(ok));
    let saga = saga.with_early_signals_kept(Duration::from_secs(3_600)).build().unwrap();
    let signal = async |payload: &'static str| saga.signal(&onceward, "81", "approved", payload).await;
    assert_eq!(signal("by Ada").await.unwrap(), Signalled::Early);
    // (Nobody asks again before: the answer would be in the cache of this process, whose clock does not jump.)
    *clock.0.lock().unwrap() += Duration::from_secs(7_200);
    onceward.sweep(&onceward::Sweep::default()).await.unwrap();
    assert_eq!(signal("by Bob").await.unwrap(), Signalled::Early);
}
