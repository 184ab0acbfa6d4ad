//! Checks of signals and hints: they affect speed only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use onceward::{
    Ask, DueLookup, Enqueued, Fingerprint, Hints, Id, Lease, Onceward, Outcome, Policy, ScanTarget, Seen,
    State, Store, Watch, Worker, WorkerOptions,
};

use super::mangled::{Mangled, Mangling};
use super::trial::{Answered, Checked, DEADLINE, Trial, Wrong, ensure, held, id, id_of};

/// A signal that takes longer is no faster than looking.
const SIGNAL_MAX: Duration = Duration::from_secs(5);
/// Between two writes that may be signalled.
const WRITE_AGAIN: Duration = Duration::from_millis(20);
const JOBS: usize = 12;

/// A signal may be lost; all of them may not.
pub(super) async fn come_after_swaps(trial: Trial) -> Checked {
    let (Some(one), Some(other)) = (trial.store.watch(), trial.store.watch()) else {
        return Ok(());
    };
    let (id, mut seen) = (id(1), Seen::Absent);
    // Two listeners are told, each for itself; one that gave up listening for a while is told again.
    let mut waiting = [tokio::spawn(hear(one)), tokio::spawn(hear(other))];
    for _ in 0..3 {
        let start = Instant::now();
        while !waiting.iter().all(tokio::task::JoinHandle::is_finished) {
            ensure!(start.elapsed() < SIGNAL_MAX, "no signal after {:?} of writing", start.elapsed());
            match trial.swap_one(&id, seen, Some(held("x"))).await? {
                Answered::Won(version) => seen = Seen::Version(version),
                Answered::Lost(found) => ensure!(false, "lost to {found:?}, and nobody else writes"),
            }
            tokio::time::sleep(WRITE_AGAIN).await;
        }
        let mut next = Vec::new();
        for heard in waiting {
            let watch = heard.await.map_err(|_| Wrong("the watch panicked".into()))?;
            next.push(tokio::spawn(hear(watch)));
        }
        waiting = next.try_into().map_err(|_| Wrong("two listeners".into()))?;
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// Waits for one signal, in several goes: a wait that is dropped must not take the watch with it.
async fn hear(mut watch: Watch) -> Watch {
    while tokio::time::timeout(Duration::from_millis(3), watch.changed()).await.is_err() {}
    watch
}

/// Enqueued work gets done, and duplicates are answered, whatever becomes of the signals.
pub(super) async fn change_speed_and_nothing_else(trial: Trial) -> Checked {
    for signals in Mangling::ALL {
        let store = Arc::new(Mangled { store: Arc::clone(&trial.store), signals, hints: None });
        everything_is_done_once(store, &format!("{signals:?}"))
            .await
            .map_err(|Wrong(wrong)| Wrong(format!("with signals {signals:?}: {wrong}")))?;
    }
    Ok(())
}

/// The same for hints. That a store continues with what was dropped is more than a hint: it is never invented
/// here.
pub(super) async fn hints_change_speed_and_nothing_else(trial: Trial) -> Checked {
    let own = trial.store.caps().hints;
    let others = [
        Hints::default().with_batches_in_flight(1).with_batches_internally(false).with_due(DueLookup::Walk),
        own.with_batches_in_flight(64).with_due(DueLookup::Index),
    ];
    for (number, hints) in others.into_iter().enumerate() {
        let (inner, signals) = (Arc::clone(&trial.store), Mangling::Doubled);
        let store = Arc::new(Mangled { store: inner, signals, hints: Some(hints) });
        everything_is_done_once(store, &format!("hints-{number}"))
            .await
            .map_err(|Wrong(wrong)| Wrong(format!("with {hints:?}: {wrong}")))?;
    }
    Ok(())
}

/// Two engines as of two processes: what one enqueues the other's worker does, and both ask for the same.
async fn everything_is_done_once(store: Arc<dyn Store>, scope: &str) -> Checked {
    let engine = || Onceward::builder(Arc::clone(&store)).accept_volatile().build();
    let (one, other) = (engine()?, engine()?);
    let policy = Arc::new(Policy::http());
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = Worker::builder(other.clone())
        .with_options(WorkerOptions::default().with_pause(Duration::from_millis(50)))
        .with_operation("job", Arc::clone(&policy), move |lease: Lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok(Outcome::succeeded(lease.input().cloned().unwrap_or_default())) }
        })
        .build()?;
    let ask = |operation: &str, number: usize| {
        let id = id_of(scope, operation, &number.to_string());
        Ask::new(id, Fingerprint::of(b"same"), Arc::clone(&policy)).with_input(number.to_string())
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(async move { worker.run_until(async { drop(stopped.await) }).await });
    for number in 0..JOBS {
        let enqueued = one.enqueue(ask("job", number)).await?;
        ensure!(enqueued == Enqueued::Accepted, "job {number} was enqueued, and is {enqueued:?}");
    }
    let jobs = (0..JOBS).map(|number| ask("job", number).id().clone()).collect::<Vec<_>>();
    until_done(&*store, &jobs).await?;
    drop(stop);
    working.await.map_err(|_| Wrong("the worker panicked".into()))?;
    ensure!(runs.load(Ordering::SeqCst) == JOBS, "{JOBS} jobs ran {} times", runs.load(Ordering::SeqCst));
    duplicates_are_answered_once(&[one, other], &ask("call", 0)).await?;
    let open = store.scan(&scan_of(ScanTarget::Due(Some(State::Waiting)))).await?.found;
    ensure!(open.is_empty(), "everything is done, and due are {open:?}");
    Ok(())
}

/// Asked for through both engines at the same time, it runs once, and everyone gets that answer.
async fn duplicates_are_answered_once(engines: &[Onceward], ask: &Ask) -> Checked {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (engine, ask, runs) = (engines[number % engines.len()].clone(), ask.clone(), Arc::clone(&runs));
        calls.spawn(async move {
            let work = async |_: Lease| {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(Outcome::succeeded(format!("run {run}")))
            };
            engine.run(ask, work).await
        });
    }
    let start = Instant::now();
    while let Some(answer) = calls.join_next().await {
        let answer = answer.map_err(|_| Wrong("a call panicked".into()))??;
        let ran =
            answer.into_result().map_err(|refusal| Wrong(format!("a duplicate was refused: {refusal}")))?;
        let body = ran.outcome.body();
        ensure!(*body == Bytes::from_static(b"run 0"), "a duplicate was answered with {body:?}");
    }
    ensure!(start.elapsed() < DEADLINE, "duplicates were answered after {:?}", start.elapsed());
    ensure!(runs.load(Ordering::SeqCst) == 1, "it ran {} times", runs.load(Ordering::SeqCst));
    Ok(())
}

async fn until_done(store: &dyn Store, ids: &[Id]) -> Checked {
    let start = Instant::now();
    loop {
        let mut open = Vec::new();
        for (id, loaded) in ids.iter().zip(store.load(ids).await?) {
            let state = loaded?.map(|found| found.state);
            if state != Some(State::Done) {
                open.push((id, state));
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        ensure!(start.elapsed() < DEADLINE, "not done after {:?}: {open:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn scan_of(of: ScanTarget) -> onceward::Scan {
    onceward::Scan::new(of, 100)
}
