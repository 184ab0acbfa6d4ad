//! Workers: what was enqueued, and what was begun and left, is finished once, by code that was registered for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Answer, Ask, Backoff, Changed, Claimed, Closed, Enqueued, ErrorKind, Fingerprint, Id, Lease, OnUnknown,
    Onceward, Outcome, Policy, Prior, Refusal, State, Stopped, Sweep, Worked, Worker, WorkerOptions,
};
use tokio::sync::Notify;

use crate::cluster::{Cluster, Fault, Kill, id, paid, run_ready_tasks, secs};

const PHASES: [&str; 3] = ["reserve", "transfer", "confirm"];
const LEASE: Duration = Duration::from_secs(10);

fn policy() -> Arc<Policy> {
    Arc::new(Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(LEASE).build().unwrap())
}

fn ask(key: &str) -> Ask {
    Ask::new(id(key), Fingerprint::of(b"whatever was asked"), policy())
}

/// What each phase of each key did, in order.
#[derive(Clone, Default)]
struct Effects(Arc<Mutex<Vec<String>>>);

impl Effects {
    fn of(&self, key: &str) -> Vec<String> {
        let mine = format!("{key} ");
        self.0.lock().unwrap().iter().filter(|effect| effect.starts_with(&mine)).cloned().collect()
    }

    /// Every phase once and in order.
    fn are_whole(&self, key: &str) -> bool {
        self.of(key) == PHASES.map(|phase| format!("{key} {phase}"))
    }
}

/// An operation of three phases that hangs after one of them, or finishes.
async fn operation(lease: Lease, effects: Effects, hangs_after: Option<usize>) -> Result<Outcome, Stopped> {
    let key = lease.id().key().to_owned();
    for (number, phase) in PHASES.into_iter().enumerate() {
        if hangs_after == Some(number) {
            std::future::pending::<()>().await;
        }
        let step = lease.step(phase, async |_| {
            effects.0.lock().unwrap().push(format!("{key} {phase}"));
            Ok(Outcome::succeeded(format!("{phase} of {key}")))
        });
        assert_eq!(step.await?.into_result()?.outcome, Outcome::succeeded(format!("{phase} of {key}")));
    }
    if hangs_after == Some(PHASES.len()) {
        std::future::pending::<()>().await;
    }
    Ok(Outcome::succeeded("paid out"))
}

/// Begins an operation in a process that dies after this number of phases.
async fn abandon(cluster: &Cluster, effects: &Effects, key: &str, after: usize) {
    let (doomed, kill): (Onceward, Kill) = cluster.killable_process();
    let (ask, effects) = (ask(key), effects.clone());
    let run =
        tokio::spawn(async move { doomed.run(ask, |lease| operation(lease, effects, Some(after))).await });
    run_ready_tasks().await;
    kill.now();
    run.abort();
}

fn worker(onceward: &Onceward, effects: &Effects) -> Worker {
    let effects = effects.clone();
    Worker::builder(onceward.clone())
        .with_operation("charge", policy(), move |lease| operation(lease, effects.clone(), None))
        .with_options(WorkerOptions::default().with_grace(Duration::ZERO))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_died_after_any_phase_is_finished_once() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    for after in 0..=PHASES.len() {
        abandon(&cluster, &effects, &format!("died-{after}"), after).await;
    }
    let onceward = cluster.process();
    let worker = worker(&onceward, &effects);
    assert_eq!(worker.run_once().await.unwrap().finished, 0, "their leases are alive");
    tokio::time::advance(LEASE * 2).await;
    assert_eq!(worker.run_once().await.unwrap().finished, 4);
    for after in 0..=PHASES.len() {
        let key = format!("died-{after}");
        assert!(effects.are_whole(&key), "{:?}", effects.of(&key));
        // An ask now gets what the worker did.
        let completed = onceward.run(ask(&key), paid).await.unwrap().into_result().unwrap();
        assert_eq!((completed.outcome, completed.replayed), (Outcome::succeeded("paid out"), true));
    }
    assert_eq!(worker.run_once().await.unwrap().finished, 4, "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn two_workers_and_a_caller_do_nothing_twice() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    for number in 0..40 {
        abandon(&cluster, &effects, &format!("left-{number}"), number % 4).await;
    }
    tokio::time::advance(LEASE * 2).await;
    let (one, two, three) = (cluster.process(), cluster.process(), cluster.process());
    let (first, second) = (worker(&one, &effects), worker(&two, &effects));
    let calls = async {
        for number in 0..40 {
            let effects = effects.clone();
            let work = |lease| operation(lease, effects, None);
            let completed =
                three.run(ask(&format!("left-{number}")), work).await.unwrap().into_result().unwrap();
            assert_eq!(completed.outcome, Outcome::succeeded("paid out"));
        }
    };
    let (first, second, ()) = tokio::join!(first.run_once(), second.run_once(), calls);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.failed + second.failed, 0);
    assert!(first.finished + second.finished <= 40);
    for number in 0..40 {
        let key = format!("left-{number}");
        assert!(effects.are_whole(&key), "{:?}", effects.of(&key));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_when_unknown_is_never_touched() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let hold = Arc::new(Policy::http().to_builder().with_lease(LEASE).build().unwrap());
    let ask = Ask::new(id("uncertain"), Fingerprint::of(b""), hold.clone());
    assert!(matches!(onceward.claim(ask).await.unwrap(), Claimed::Granted(_)));

    tokio::time::advance(LEASE * 2).await;
    let worker = worker(&onceward, &Effects::default());
    let before = onceward.receipt(&id("uncertain")).await.unwrap().unwrap();
    let counts = worker.run_once().await.unwrap();
    assert_eq!((counts.needs_settlement, counts.finished, counts.failed), (1, 0, 0));
    let holding = Worker::builder(onceward.clone()).with_operation("charge", hold, paid).build().unwrap();
    assert_eq!(holding.work_on(&id("uncertain")).await.unwrap(), Worked::NeedsSettlement);
    let after = onceward.receipt(&id("uncertain")).await.unwrap().unwrap();
    assert_eq!((before.version, before.status), (after.version, after.status));
    // And once it is written down as unknown, it is not even abandoned any more.
    onceward.sweep(&Sweep::default()).await.unwrap();
    assert_eq!(worker.run_once().await.unwrap().needs_settlement, 0);
    let now = onceward.receipt(&id("uncertain")).await.unwrap().unwrap();
    assert_eq!(now.status.state(), State::Unknown);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_code_here_is_counted_and_left() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let other = Ask::new(Id::new("tenant", "ship", "k").unwrap(), Fingerprint::of(b""), policy());
    assert!(matches!(onceward.claim(other).await.unwrap(), Claimed::Granted(_)));
    abandon(&cluster, &Effects::default(), "mine", 1).await;
    tokio::time::advance(LEASE * 2).await;
    let none = Worker::builder(onceward.clone()).build().unwrap();
    assert_eq!(none.run_once().await.unwrap().no_code, 2);
    let enqueued = Ask::new(Id::new("tenant", "ship", "later").unwrap(), Fingerprint::of(b""), policy());
    assert_eq!(onceward.enqueue(enqueued.with_input("box")).await.unwrap(), Enqueued::Accepted);
    tokio::time::advance(secs(1)).await;
    assert_eq!(none.run_once().await.unwrap().no_code, 3);
    assert_eq!(none.counts().finished + none.counts().failed, 0);
    for wrong in ["", "charge#step"] {
        let refused =
            Worker::builder(onceward.clone()).with_operation(wrong, policy(), paid).build().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}

/// Failing code is tried again, each time later, and its intent is never forgotten: after its tries it is dead.
#[tokio::test(start_paused = true)]
async fn code_that_keeps_failing_backs_off_and_is_dead_in_the_end() {
    let cluster = Cluster::new();
    abandon(&cluster, &Effects::default(), "stubborn", 1).await;
    tokio::time::advance(LEASE * 2).await;
    let onceward = cluster.process();
    let tries = Arc::new(Mutex::new(Vec::new()));
    let start = tokio::time::Instant::now();
    let work = {
        let tries = tries.clone();
        move |lease: Lease| {
            let mut tries = tries.lock().unwrap();
            tries.push(start.elapsed());
            let number = tries.len();
            assert_eq!(usize::from(lease.tries()), number);
            async move {
                match number % 3 {
                    0 => Err(Stopped::before_effect("not yet")),
                    1 => Err(Stopped::unknown("who knows")),
                    _ => panic!("it breaks down"),
                }
            }
        }
    };
    let slow = policy().to_builder().with_backoff(Backoff::new(secs(20), secs(60))).build().unwrap();
    let options = WorkerOptions::default().with_grace(Duration::ZERO).with_pause(secs(1));
    let worker = Worker::builder(onceward.clone())
        .with_operation("charge", Arc::new(slow), work)
        .with_options(options)
        .build()
        .unwrap();
    worker.run_until(tokio::time::sleep(secs(600))).await;
    let tries = tries.lock().unwrap().clone();
    let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1].as_secs() - pair[0].as_secs()).collect();
    assert!(
        gaps.iter().zip([20, 40, 60, 60]).all(|(gap, least)| (least..least + 3).contains(gap)),
        "{gaps:?}"
    );
    assert_eq!(tries.len(), 5, "as often as its policy allows");
    assert_eq!((worker.counts().failed, worker.counts().dead), (4, 1));
    let receipt = onceward.receipt(&id("stubborn")).await.unwrap().expect("it is not forgotten");
    assert_eq!(receipt.status.state(), State::Dead);
    let job = receipt.status.job().unwrap();
    assert_eq!((job.started, job.finished, &*job.note), (5, 5, "it panicked"));
    // The dead are left alone, and an ask is told why.
    worker.run_until(tokio::time::sleep(secs(600))).await;
    let refused = onceward.run(ask("stubborn"), paid).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::Dead { note: "it panicked".into() }));
}

/// Wherever it is dropped, the intent stays where another can find it.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_dropped_leaves_its_work_to_others() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    let onceward = cluster.process();
    for polls in 0..12 {
        let key = format!("dropped-{polls}");
        abandon(&cluster, &effects, &key, 1).await;
        tokio::time::advance(LEASE * 4).await;
        let worker = worker(&onceward, &effects);
        let mut round = Box::pin(worker.run_once());
        for _ in 0..polls {
            let ready = std::future::poll_fn(|cx| std::task::Poll::Ready(round.as_mut().poll(cx).is_ready()));
            if ready.await {
                round = Box::pin(worker.run_once());
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(round);
        run_ready_tasks().await;
        assert!(onceward.receipt(&id(&key)).await.unwrap().is_some(), "{key} is forgotten");
    }
    tokio::time::advance(LEASE * 4).await;
    let last = cluster.process();
    worker(&last, &effects).run_once().await.unwrap();
    for polls in 0..12 {
        let key = format!("dropped-{polls}");
        assert!(effects.are_whole(&key), "{:?}", effects.of(&key));
        assert_eq!(last.receipt(&id(&key)).await.unwrap().unwrap().status.state(), State::Done);
    }
}

/// On the signal nothing more begins, and what is running is finished. Never are more running than allowed.
#[tokio::test(start_paused = true)]
async fn it_stops_on_a_signal_and_keeps_to_its_bound() {
    let cluster = Cluster::new();
    for number in 0..20 {
        abandon(&cluster, &Effects::default(), &format!("slow-{number}"), 0).await;
    }
    tokio::time::advance(LEASE * 2).await;
    let onceward = cluster.process();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = {
        let (now, most) = (now.clone(), most.clone());
        move |_: Lease| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(secs(30)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(Outcome::succeeded("slow"))
            }
        }
    };
    let options = WorkerOptions::default().with_concurrency(3).with_grace(Duration::ZERO);
    let worker = Worker::builder(onceward)
        .with_operation("charge", policy(), work)
        .with_options(options)
        .build()
        .unwrap();
    let stop = Notify::new();
    let signal = async {
        tokio::time::sleep(secs(40)).await;
        stop.notify_one();
    };
    let (counts, ()) = tokio::join!(
        async {
            worker.run_until(stop.notified()).await;
            worker.counts()
        },
        signal
    );
    assert_eq!((counts.finished, now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (6, 0, 3));
}

/// One that hangs has its place and no more: the others are finished.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_holds_nobody_up() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    let onceward = cluster.process();
    abandon(&cluster, &effects, "hangs", 1).await;
    tokio::time::advance(LEASE * 2).await;
    let work = {
        let effects = effects.clone();
        move |lease: Lease| {
            let hangs_after = (lease.id().key() == "hangs").then_some(1);
            operation(lease, effects.clone(), hangs_after)
        }
    };
    let options = WorkerOptions::default().with_grace(Duration::ZERO);
    let worker = Worker::builder(onceward)
        .with_operation("charge", policy(), work)
        .with_options(options)
        .build()
        .unwrap();
    let later = async {
        tokio::time::sleep(secs(60)).await;
        abandon(&cluster, &effects, "later", 1).await;
        tokio::time::sleep(secs(60)).await;
    };
    tokio::select! {
        () = worker.run_until(std::future::pending()) => unreachable!("nobody stops it"),
        () = later => {}
    }
    assert_eq!(worker.counts().finished, 1);
    assert!(effects.are_whole("later"));
}

/// A store that fails while a worker runs costs time and nothing else.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_costs_nothing_but_time() {
    for fault in [Fault::LoseReply, Fault::LoseWrite, Fault::Refuse] {
        for at in 0..5 {
            let cluster = Cluster::new();
            let effects = Effects::default();
            abandon(&cluster, &effects, "k", 1).await;
            tokio::time::advance(LEASE * 2).await;
            let onceward = cluster.process();
            let worker = worker(&onceward, &effects);
            cluster.store.script(std::iter::repeat_n(Fault::Pass, at).chain([fault]));
            worker.run_until(tokio::time::sleep(secs(120))).await;
            assert!(effects.are_whole("k"), "{fault:?} at {at}: {:?}", effects.of("k"));
            let receipt = onceward.receipt(&id("k")).await.unwrap().unwrap();
            assert_eq!(receipt.status.state(), State::Done, "{fault:?} at {at}");
        }
    }
}

/// A service that is told about one intent says what became of it.
#[tokio::test(start_paused = true)]
async fn one_intent_is_completed_by_its_name() {
    let cluster = Cluster::new();
    let effects = Effects::default();
    let onceward = cluster.process();
    let own = worker(&onceward, &effects);
    abandon(&cluster, &effects, "one", 2).await;
    assert_eq!(own.work_on(&id("one")).await.unwrap(), Worked::NothingToDo, "its lease is alive");
    tokio::time::advance(LEASE * 2).await;
    let none = Worker::builder(onceward.clone()).build().unwrap();
    assert_eq!(none.work_on(&id("one")).await.unwrap(), Worked::NoCode);
    let other = cluster.process();
    let failing = async |_: Lease| Ok(Outcome::failed("declined"));
    let queue = Arc::new(Policy::queue().to_builder().with_lease(LEASE).build().unwrap());
    let failing = Worker::builder(other.clone()).with_operation("charge", queue, failing).build().unwrap();
    assert!(matches!(failing.work_on(&id("one")).await.unwrap(), Worked::Failed(_)));
    let one = id("one");
    let (first, second) = tokio::join!(own.work_on(&one), own.work_on(&one));
    let both = [first.unwrap(), second.unwrap()];
    assert_eq!(both.iter().filter(|one| **one == Worked::Finished).count(), 1, "{both:?}");
    assert!(effects.are_whole("one"));
    for (key, expected) in [("one", Worked::NothingToDo), ("none", Worked::NothingToDo)] {
        assert_eq!(own.work_on(&id(key)).await.unwrap(), expected);
    }
    let hold = Ask::new(
        id("held"),
        Fingerprint::of(b""),
        Arc::new(Policy::http().to_builder().with_lease(LEASE).build().unwrap()),
    );
    assert!(matches!(other.claim(hold).await.unwrap(), Claimed::Granted(_)));
    tokio::time::advance(LEASE * 2).await;
    assert_eq!(own.work_on(&id("held")).await.unwrap(), Worked::NeedsSettlement);
}

/// What was settled as not done and carries no input waits for its caller, who alone knows what is to be done.
#[tokio::test(start_paused = true)]
async fn an_intent_without_an_input_is_left_to_its_caller() {
    let cluster = Cluster::new();
    let (onceward, effects) = (cluster.process(), Effects::default());
    let hold = Arc::new(Policy::http().to_builder().with_lease(LEASE).build().unwrap());
    let asked = Ask::new(id("k"), Fingerprint::of(b""), hold.clone());
    onceward.run(asked, async |_| Err(Stopped::unknown("no answer"))).await.unwrap_err();
    let fence = onceward.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    onceward.settle(&id("k"), fence, &onceward::Settlement::NotDone, &hold).await.unwrap();
    let own = worker(&onceward, &effects);
    assert_eq!(own.work_on(&id("k")).await.unwrap(), Worked::NothingToDo);
    assert_eq!(onceward.receipt(&id("k")).await.unwrap().unwrap().status.state(), State::Waiting);
    assert!(effects.of("k").is_empty());
}

fn enqueued(key: &str) -> Ask {
    ask(key).with_input(format!("input of {key}"))
}

#[tokio::test(start_paused = true)]
async fn what_is_enqueued_is_done_once_with_its_input() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    assert_eq!(onceward.enqueue(enqueued("a")).await.unwrap(), Enqueued::Accepted);
    assert_eq!(onceward.enqueue(enqueued("a")).await.unwrap(), Enqueued::AlreadyThere(State::Waiting));
    let other = Ask::new(id("a"), Fingerprint::of(b"other"), policy()).with_input("other");
    assert_eq!(onceward.enqueue(other).await.unwrap(), Enqueued::Refused(Refusal::KeyReused));

    let inputs = Arc::new(Mutex::new(Vec::new()));
    let echo = {
        let inputs = inputs.clone();
        move |lease: Lease| {
            let input = lease.input().cloned().expect("it was enqueued with one");
            inputs.lock().unwrap().push(input.clone());
            async move { Ok(Outcome::succeeded(input)) }
        }
    };
    let workers: Vec<_> = (0..3)
        .map(|_| {
            Worker::builder(cluster.process())
                .with_operation("charge", policy(), echo.clone())
                .build()
                .unwrap()
        })
        .collect();
    for worker in &workers {
        worker.run_once().await.unwrap();
    }
    assert_eq!(*inputs.lock().unwrap(), ["input of a"]);
    let completed = onceward.run(ask("a"), paid).await.unwrap().into_result().unwrap();
    assert_eq!((completed.outcome, completed.replayed), (Outcome::succeeded("input of a"), true));
    assert_eq!(onceward.enqueue(enqueued("a")).await.unwrap(), Enqueued::AlreadyThere(State::Done));
    let receipt = onceward.receipt(&id("a")).await.unwrap().unwrap();
    assert_eq!(receipt.status.job(), None, "the input is dropped when it is done");
}

/// An ask runs what waits at once, whatever its due time, and with the input that was kept.
#[tokio::test(start_paused = true)]
async fn an_ask_does_not_wait_for_a_worker() {
    let onceward = Cluster::new().process();
    onceward.enqueue(enqueued("soon").with_delay(secs(3_600))).await.unwrap();
    let echo = async |lease: Lease| Ok(Outcome::succeeded(lease.input().cloned().unwrap()));
    let completed =
        onceward.run(ask("soon").with_input("another input"), echo).await.unwrap().into_result().unwrap();
    assert_eq!((completed.outcome, completed.replayed), (Outcome::succeeded("input of soon"), false));
}

/// What its own process enqueues is begun at once, not at the next look.
#[tokio::test(start_paused = true)]
async fn a_worker_wakes_for_what_its_process_enqueues() {
    let onceward = Cluster::new().process();
    let options = WorkerOptions::default().with_pause(secs(3_600));
    let done = Arc::new(Notify::new());
    let work = {
        let done = done.clone();
        move |_: Lease| {
            done.notify_one();
            async { Ok(Outcome::succeeded("done")) }
        }
    };
    let worker = Worker::builder(onceward.clone())
        .with_operation("charge", policy(), work)
        .with_options(options)
        .build()
        .unwrap();
    let running = tokio::spawn(async move { worker.run_until(std::future::pending()).await });
    // Long enough that it looks only once an hour.
    tokio::time::sleep(secs(36_000)).await;
    let start = tokio::time::Instant::now();
    onceward.enqueue(enqueued("now")).await.unwrap();
    done.notified().await;
    assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_waited_for_and_a_suspension_counts_nothing() {
    let onceward = Cluster::new().process();
    let start = tokio::time::Instant::now();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let work = {
        let begun = begun.clone();
        move |lease: Lease| {
            let mut begun = begun.lock().unwrap();
            begun.push((start.elapsed().as_secs(), lease.tries()));
            let enough = begun.len() == 20;
            async move { if enough { Ok(Outcome::succeeded("at last")) } else { Err(Stopped::suspend(secs(60))) } }
        }
    };
    let worker = Worker::builder(onceward.clone()).with_operation("charge", policy(), work).build().unwrap();
    onceward.enqueue(enqueued("later").with_delay(secs(100))).await.unwrap();
    worker.run_until(tokio::time::sleep(secs(3_600))).await;
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun.len(), 20, "far more often than it has tries");
    assert!(
        begun.iter().enumerate().all(|(number, (at, tries))| {
            (100 + 60 * number as u64..103 + 62 * number as u64).contains(at) && *tries == 1
        }),
        "{begun:?}"
    );
    assert_eq!((worker.counts().suspended, worker.counts().finished), (19, 1));
}

/// Work that takes its process with it counts as a try, although nobody is left to count it.
#[tokio::test(start_paused = true)]
async fn work_that_kills_its_process_is_dead_after_its_tries() {
    let cluster = Cluster::new();
    cluster.process().enqueue(enqueued("poison")).await.unwrap();
    let options = WorkerOptions::default().with_grace(Duration::ZERO).with_pause(secs(1));
    let mut deaths = 0;
    for _ in 0..20 {
        let (doomed, kill) = cluster.killable_process();
        let reached = Arc::new(Notify::new());
        let work = {
            let reached = reached.clone();
            move |_: Lease| {
                reached.notify_one();
                std::future::pending()
            }
        };
        let worker = Worker::builder(doomed)
            .with_operation("charge", policy(), work)
            .with_options(options.clone())
            .build()
            .unwrap();
        let running = tokio::spawn(async move { worker.run_until(std::future::pending()).await });
        if tokio::time::timeout(secs(120), reached.notified()).await.is_ok() {
            deaths += 1;
        }
        // Dead before it is dropped, so that it cannot say anything any more.
        kill.now();
        running.abort();
        tokio::time::advance(LEASE * 2).await;
    }
    assert_eq!(deaths, 5);
    let receipt = cluster.process().receipt(&id("poison")).await.unwrap().unwrap();
    assert_eq!(receipt.status.state(), State::Dead);
    let job = receipt.status.job().unwrap();
    assert_eq!((job.started, job.finished, &job.input[..]), (5, 0, &b"input of poison"[..]));
    assert!(job.note.contains("5 of 5 tries ended without a word"), "{}", job.note);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_retried_or_discarded_by_a_person() {
    let onceward = Cluster::new().process();
    let once = Arc::new(policy().to_builder().with_tries_max(1).build().unwrap());
    let refuse = async |_: Lease| Err(Stopped::before_effect("no\u{7}pe\n"));
    let failing =
        Worker::builder(onceward.clone()).with_operation("charge", once.clone(), refuse).build().unwrap();
    for key in ["retried", "discarded", "settled"] {
        onceward.enqueue(enqueued(key)).await.unwrap();
        assert_eq!(failing.work_on(&id(key)).await.unwrap(), Worked::Dead);
        let receipt = onceward.receipt(&id(key)).await.unwrap().unwrap();
        assert_eq!(receipt.status.job().unwrap().note, "no pe ", "a note has no control characters");
        assert!(matches!(onceward.run(ask(key), paid).await.unwrap(), Answer::Refused(Refusal::Dead { .. })));
    }
    onceward.sweep(&Sweep::default()).await.unwrap();
    assert_eq!(onceward.retry_dead(&id("retried")).await.unwrap(), Changed::Applied);
    let working =
        Worker::builder(onceward.clone()).with_operation("charge", once.clone(), paid).build().unwrap();
    assert_eq!(working.run_once().await.unwrap().finished, 1);
    assert!(matches!(onceward.retry_dead(&id("retried")).await.unwrap(), Changed::NotOwner(Some(_))));

    assert_eq!(onceward.discard_dead(&id("discarded"), &once).await.unwrap(), Changed::Applied);
    let closed = onceward.run(ask("discarded"), paid).await.unwrap();
    assert_eq!(closed, Answer::Refused(Refusal::Closed(Closed::Discarded)));

    let fence = onceward.receipt(&id("settled")).await.unwrap().unwrap().status.fence();
    let done = onceward::Settlement::Done(Outcome::succeeded("by hand"));
    assert_eq!(onceward.settle(&id("settled"), fence, &done, &once).await.unwrap(), Changed::Applied);
    assert!(onceward.run(ask("settled"), paid).await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn what_waits_can_be_cancelled_and_what_runs_cannot() {
    let onceward = Cluster::new().process();
    onceward.enqueue(enqueued("cancelled")).await.unwrap();
    assert_eq!(onceward.cancel(&id("cancelled"), &policy()).await.unwrap(), Changed::Applied);
    assert!(matches!(
        onceward.cancel(&id("cancelled"), &policy()).await.unwrap(),
        Changed::NotOwner(Some(_))
    ));
    assert!(matches!(onceward.cancel(&id("nobody"), &policy()).await.unwrap(), Changed::NotOwner(None)));
    let worker = Worker::builder(onceward.clone()).with_operation("charge", policy(), paid).build().unwrap();
    assert_eq!(worker.run_once().await.unwrap().finished, 0);
    // Whatever is asked under the key, it is not run.
    for body in ["whatever was asked", "something else"] {
        let ask = Ask::new(id("cancelled"), Fingerprint::of(body.as_bytes()), policy());
        let refused = onceward.run(ask, paid).await.unwrap();
        assert_eq!(refused, Answer::Refused(Refusal::Closed(Closed::Cancelled)));
    }
    assert_eq!(onceward.enqueue(enqueued("cancelled")).await.unwrap(), Enqueued::AlreadyThere(State::Done));

    assert!(matches!(onceward.claim(ask("running")).await.unwrap(), Claimed::Granted(_)));
    assert!(matches!(onceward.cancel(&id("running"), &policy()).await.unwrap(), Changed::NotOwner(Some(_))));
    assert_eq!(onceward.close(&id("running"), &policy()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(onceward.close(&id("late"), &policy()).await.unwrap(), Changed::Applied);
    let late = onceward.run(ask("late"), paid).await.unwrap();
    assert_eq!(late, Answer::Refused(Refusal::Closed(Closed::Undone)));
}

/// An input is never forgotten: neither by a run that stops, nor by a sweep, nor by a crash.
#[tokio::test(start_paused = true)]
async fn an_input_outlives_runs_that_stop() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let stop = async |_: Lease| Err(Stopped::before_effect("no connection"));
    onceward.run(enqueued("stopped"), stop).await.unwrap_err();
    let dropped = onceward.run(enqueued("dropped"), async |_| std::future::pending().await);
    assert!(tokio::time::timeout(secs(1), dropped).await.is_err());
    run_ready_tasks().await;
    tokio::time::advance(secs(3_600 * 24 * 30)).await;
    onceward.sweep(&Sweep::default().with_abandoned_after(Duration::ZERO)).await.unwrap();
    for (key, prior) in [("stopped", Prior::Nothing), ("dropped", Prior::Unknown)] {
        let receipt = onceward.receipt(&id(key)).await.unwrap().expect("it is not forgotten");
        assert_eq!(receipt.status.state(), State::Waiting, "{key}");
        assert_eq!(receipt.status.job().unwrap().input, format!("input of {key}"));
        let seen = async |lease: Lease| Ok(Outcome::succeeded(format!("{:?}", lease.prior())));
        let worker =
            Worker::builder(onceward.clone()).with_operation("charge", policy(), seen).build().unwrap();
        assert_eq!(worker.work_on(&id(key)).await.unwrap(), Worked::Finished);
        let outcome = onceward.run(ask(key), paid).await.unwrap().into_result().unwrap().outcome;
        assert_eq!(outcome, Outcome::succeeded(format!("{prior:?}")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_over_the_bound_is_refused_before_anything_happens() {
    let onceward = Cluster::new().process();
    let large = vec![0; (1 << 20) + 1];
    let error = onceward.enqueue(ask("large").with_input(large.clone())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("input_bytes_max"), "{error}");
    assert!(onceward.run(ask("large").with_input(large), crate::cluster::never).await.is_err());
    assert_eq!(onceward.receipt(&id("large")).await.unwrap(), None);
    assert_eq!(onceward.enqueue(ask("fits").with_input(vec![0; 1 << 20])).await.unwrap(), Enqueued::Accepted);
}

#[tokio::test(start_paused = true)]
async fn what_a_look_begins_is_claimed_in_one_batch_and_completed_in_one() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    for number in 0..20 {
        onceward.enqueue(ask(&format!("task-{number}")).with_input("12")).await.unwrap();
    }
    let worker = Worker::builder(onceward.clone())
        .with_operation("charge", policy(), async |_| Ok(Outcome::succeeded("paid")))
        .with_options(WorkerOptions::default().with_concurrency(20))
        .build()
        .unwrap();
    let before = onceward.counts().store_batches;
    assert_eq!(worker.run_once().await.unwrap().finished, 20);
    assert_eq!(onceward.counts().store_batches - before, 2);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_time_begins_now_if_it_is_started_now() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let delayed = ask("later").with_input("").with_delay(secs(3600));
    assert_eq!(onceward.enqueue(delayed).await.unwrap(), Enqueued::Accepted);
    let work = async |lease: Lease| Ok(Outcome::succeeded(lease.onceward().counts().claims.to_string()));
    let worker = Worker::builder(onceward.clone()).with_operation("charge", policy(), work).build().unwrap();
    assert_eq!(worker.run_once().await.unwrap().finished, 0);
    assert_eq!(onceward.start_now(&id("later")).await.unwrap(), Changed::Applied);
    assert!(
        matches!(onceward.start_now(&id("later")).await.unwrap(), Changed::NotOwner(Some(_))),
        "it is due"
    );
    assert_eq!(worker.run_once().await.unwrap().finished, 1);
    assert!(
        matches!(onceward.start_now(&id("later")).await.unwrap(), Changed::NotOwner(Some(_))),
        "it is done"
    );
    assert_eq!(onceward.start_now(&id("never")).await.unwrap(), Changed::NotOwner(None));
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_closed_only_as_it_was_found_and_in_a_transaction_when_that_commits() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    // Read as absent, and enqueued since: not closed.
    onceward.enqueue(ask("k").with_input("")).await.unwrap();
    assert!(matches!(
        onceward.close_found(&id("k"), None, &policy()).await.unwrap(),
        Changed::NotOwner(Some(_))
    ));
    let found = onceward.receipt(&id("k")).await.unwrap();
    assert_eq!(onceward.close_found(&id("k"), found.as_ref(), &policy()).await.unwrap(), Changed::Applied);

    let transactions = cluster.store.transactions();
    let never = async |_| unreachable!("it is closed");
    for commit in [false, true] {
        let mut tx = transactions.open();
        assert_eq!(onceward.close_in(&mut tx, &id("in"), &policy()).await.unwrap(), Changed::Applied);
        if commit {
            tx.commit().unwrap();
        }
        assert_eq!(onceward.receipt(&id("in")).await.unwrap().is_some(), commit);
    }
    let late = onceward.run(ask("in"), never).await.unwrap();
    assert_eq!(late, Answer::Refused(Refusal::Closed(Closed::Undone)));
}

/// A run that never had an input has none for the worker that takes it over either, on any of its tries.
#[tokio::test(start_paused = true)]
async fn a_run_without_an_input_has_none_when_a_worker_goes_on_with_it() {
    let cluster = Cluster::new();
    let (first, kill) = cluster.killable_process();
    let hangs = async |lease: Lease| {
        assert_eq!((lease.input(), lease.tries()), (None, 1));
        kill.now();
        std::future::pending().await
    };
    tokio::time::timeout(secs(1), first.run(ask("k"), hangs)).await.unwrap_err();
    tokio::time::sleep(LEASE * 3).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let work = {
        let seen = seen.clone();
        move |lease: Lease| {
            let mut seen = seen.lock().unwrap();
            seen.push((lease.input().cloned(), lease.tries()));
            let ends = if seen.len() < 2 { Err(Stopped::before_effect("once more")) } else { Ok("done") };
            async move { ends.map(Outcome::succeeded) }
        }
    };
    let onceward = cluster.process();
    let worker = Worker::builder(onceward.clone()).with_operation("charge", policy(), work).build().unwrap();
    for _ in 0..2 {
        worker.run_once().await.unwrap();
        tokio::time::sleep(secs(3_600)).await;
    }
    assert_eq!(*seen.lock().unwrap(), [(None, 1), (None, 2)]);
    assert_eq!(onceward.receipt(&id("k")).await.unwrap().unwrap().status.state(), State::Done);
}
