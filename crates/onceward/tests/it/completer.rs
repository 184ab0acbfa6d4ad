//! The completer: what was begun and left is finished once, by code that was registered for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Ask, Claimed, Completed, Completer, Completion, ErrorKind, Fingerprint, Id, Lease, OnUnknown, Onceward,
    Outcome, Pace, Policy, State, Stopped, Sweep,
};
use tokio::sync::Notify;

use crate::stage::{Fault, Kill, Stage, id, paid, secs, settle_down};

const PHASES: [&str; 3] = ["reserve", "transfer", "confirm"];
const LEASE: Duration = Duration::from_secs(10);

fn policy() -> Arc<Policy> {
    Arc::new(Policy::http().on_unknown(OnUnknown::Retry).lease(LEASE).unwrap())
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

/// An operation of three phases that stands still after one of them, or goes through.
async fn operation(lease: Lease, effects: Effects, stands_after: Option<usize>) -> Result<Outcome, Stopped> {
    let key = lease.id().key().to_owned();
    for (number, phase) in PHASES.into_iter().enumerate() {
        if stands_after == Some(number) {
            std::future::pending::<()>().await;
        }
        let step = lease.step(phase, async |_| {
            effects.0.lock().unwrap().push(format!("{key} {phase}"));
            Ok(Outcome::succeeded(format!("{phase} of {key}")))
        });
        assert_eq!(step.await?.ran()?.outcome, Outcome::succeeded(format!("{phase} of {key}")));
    }
    if stands_after == Some(PHASES.len()) {
        std::future::pending::<()>().await;
    }
    Ok(Outcome::succeeded("paid out"))
}

/// Begins an operation in a process that dies after so many phases.
async fn abandon(stage: &Stage, effects: &Effects, key: &str, after: usize) {
    let (doomed, kill): (Onceward, Kill) = stage.mortal_process();
    let (ask, effects) = (ask(key), effects.clone());
    let run =
        tokio::spawn(async move { doomed.run(ask, |lease| operation(lease, effects, Some(after))).await });
    settle_down().await;
    kill.now();
    run.abort();
}

fn completer(onceward: &Onceward, effects: &Effects) -> Completer {
    let effects = effects.clone();
    Completer::new(onceward.clone())
        .operation("charge", policy(), move |lease| operation(lease, effects.clone(), None))
        .unwrap()
        .pace(Pace { grace: Duration::ZERO, ..Pace::default() })
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_died_after_any_phase_is_finished_once() {
    let stage = Stage::new();
    let effects = Effects::default();
    for after in 0..=PHASES.len() {
        abandon(&stage, &effects, &format!("died-{after}"), after).await;
    }
    let onceward = stage.process();
    let completer = completer(&onceward, &effects);
    assert_eq!(completer.round().await.unwrap(), Completed::default(), "their leases are alive");
    tokio::time::advance(LEASE * 2).await;
    assert_eq!(completer.round().await.unwrap().finished, 4);
    for after in 0..=PHASES.len() {
        let key = format!("died-{after}");
        assert!(effects.are_whole(&key), "{:?}", effects.of(&key));
        // Whoever asks now gets what the completer did.
        let ran = onceward.run(ask(&key), paid).await.unwrap().ran().unwrap();
        assert_eq!((ran.outcome, ran.replayed), (Outcome::succeeded("paid out"), true));
    }
    assert_eq!(completer.round().await.unwrap().finished, 4, "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn two_completers_and_a_caller_do_nothing_twice() {
    let stage = Stage::new();
    let effects = Effects::default();
    for number in 0..40 {
        abandon(&stage, &effects, &format!("left-{number}"), number % 4).await;
    }
    tokio::time::advance(LEASE * 2).await;
    let (one, two, three) = (stage.process(), stage.process(), stage.process());
    let (first, second) = (completer(&one, &effects), completer(&two, &effects));
    let calls = async {
        for number in 0..40 {
            let effects = effects.clone();
            let work = |lease| operation(lease, effects, None);
            let ran = three.run(ask(&format!("left-{number}")), work).await.unwrap().ran().unwrap();
            assert_eq!(ran.outcome, Outcome::succeeded("paid out"));
        }
    };
    let (first, second, ()) = tokio::join!(first.round(), second.round(), calls);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.failed + second.failed, 0);
    assert!(first.finished + second.finished <= 40);
    for number in 0..40 {
        let key = format!("left-{number}");
        assert!(effects.are_whole(&key), "{:?}", effects.of(&key));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_when_in_doubt_is_never_touched() {
    let stage = Stage::new();
    let onceward = stage.process();
    let hold = Arc::new(Policy::http().lease(LEASE).unwrap());
    let ask = Ask::new(id("doubtful"), Fingerprint::of(b""), hold.clone());
    assert!(matches!(onceward.claim(ask).await.unwrap(), Claimed::Yes(_)));
    let refused = Completer::new(onceward.clone()).operation("charge", hold, paid).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);

    tokio::time::advance(LEASE * 2).await;
    let completer = completer(&onceward, &Effects::default());
    let before = onceward.show(&id("doubtful")).await.unwrap().unwrap();
    assert_eq!(completer.round().await.unwrap(), Completed { held: 1, ..Completed::default() });
    let after = onceward.show(&id("doubtful")).await.unwrap().unwrap();
    assert_eq!((before.version, before.status), (after.version, after.status));
    // And once it is written down as unknown, it is not even abandoned any more.
    onceward.sweep(&Sweep::default()).await.unwrap();
    assert_eq!(completer.round().await.unwrap(), Completed::default());
    let now = onceward.show(&id("doubtful")).await.unwrap().unwrap();
    assert_eq!(now.status.state(), State::Unknown);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_code_here_is_counted_and_left() {
    let stage = Stage::new();
    let onceward = stage.process();
    let other = Ask::new(Id::new("tenant", "ship", "k").unwrap(), Fingerprint::of(b""), policy());
    assert!(matches!(onceward.claim(other).await.unwrap(), Claimed::Yes(_)));
    abandon(&stage, &Effects::default(), "mine", 1).await;
    tokio::time::advance(LEASE * 2).await;
    let none = Completer::new(onceward.clone());
    assert_eq!(none.round().await.unwrap(), Completed { unregistered: 2, ..Completed::default() });
    let found = onceward.abandoned(None, 100).await.unwrap().found;
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|left| left.ago >= LEASE && left.on_unknown == OnUnknown::Retry));
    for wrong in ["", "charge#step"] {
        let refused = Completer::new(onceward.clone()).operation(wrong, policy(), paid).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}

/// Failing code is tried again, each time later, and its intent is never forgotten.
#[tokio::test(start_paused = true)]
async fn code_that_keeps_failing_backs_off() {
    let stage = Stage::new();
    abandon(&stage, &Effects::default(), "stubborn", 1).await;
    tokio::time::advance(LEASE * 2).await;
    let onceward = stage.process();
    let tries = Arc::new(Mutex::new(Vec::new()));
    let start = tokio::time::Instant::now();
    let work = {
        let tries = tries.clone();
        move |_: Lease| {
            let mut tries = tries.lock().unwrap();
            tries.push(start.elapsed());
            let number = tries.len();
            async move {
                match number % 3 {
                    0 => Err(Stopped::before_effect("not yet")),
                    1 => Err(Stopped::unknown("who knows")),
                    _ => panic!("it breaks down"),
                }
            }
        }
    };
    let pace = Pace {
        grace: Duration::ZERO,
        pause: secs(1),
        backoff_min: secs(20),
        backoff_max: secs(60),
        ..Pace::default()
    };
    let completer = Completer::new(onceward.clone()).operation("charge", policy(), work).unwrap().pace(pace);
    completer.run_until(tokio::time::sleep(secs(300))).await;
    let tries = tries.lock().unwrap().clone();
    let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1].as_secs() - pair[0].as_secs()).collect();
    assert!(
        gaps.iter().zip([20, 40, 60, 60, 60]).all(|(gap, least)| (least..least + 3).contains(gap)),
        "{gaps:?}"
    );
    assert!(gaps.len() >= 4, "{gaps:?}");
    assert_eq!(completer.counts().failed, tries.len() as u64);
    let receipt = onceward.show(&id("stubborn")).await.unwrap().expect("it is not forgotten");
    assert_eq!(receipt.status.state(), State::Held);
}

/// Wherever it is dropped, the intent stays where another can find it.
#[tokio::test(start_paused = true)]
async fn a_completer_that_is_dropped_leaves_its_work_to_others() {
    let stage = Stage::new();
    let effects = Effects::default();
    let onceward = stage.process();
    for polls in 0..12 {
        let key = format!("dropped-{polls}");
        abandon(&stage, &effects, &key, 1).await;
        tokio::time::advance(LEASE * 4).await;
        let completer = completer(&onceward, &effects);
        let mut round = Box::pin(completer.round());
        for _ in 0..polls {
            let ready = std::future::poll_fn(|cx| std::task::Poll::Ready(round.as_mut().poll(cx).is_ready()));
            if ready.await {
                round = Box::pin(completer.round());
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(round);
        settle_down().await;
        assert!(onceward.show(&id(&key)).await.unwrap().is_some(), "{key} is forgotten");
    }
    tokio::time::advance(LEASE * 4).await;
    let last = stage.process();
    completer(&last, &effects).round().await.unwrap();
    for polls in 0..12 {
        let key = format!("dropped-{polls}");
        assert!(effects.are_whole(&key), "{:?}", effects.of(&key));
        assert_eq!(last.show(&id(&key)).await.unwrap().unwrap().status.state(), State::Done);
    }
}

/// On the signal nothing more begins, and what is under way is finished. Never are more under way than allowed.
#[tokio::test(start_paused = true)]
async fn it_stops_on_a_signal_and_keeps_to_its_bound() {
    let stage = Stage::new();
    for number in 0..20 {
        abandon(&stage, &Effects::default(), &format!("slow-{number}"), 0).await;
    }
    tokio::time::advance(LEASE * 2).await;
    let onceward = stage.process();
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
    let pace = Pace { concurrency: 3, grace: Duration::ZERO, ..Pace::default() };
    let completer = Completer::new(onceward).operation("charge", policy(), work).unwrap().pace(pace);
    let stop = Notify::new();
    let signal = async {
        tokio::time::sleep(secs(40)).await;
        stop.notify_one();
    };
    let (counts, ()) = tokio::join!(
        async {
            completer.run_until(stop.notified()).await;
            completer.counts()
        },
        signal
    );
    assert_eq!((counts.finished, now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (6, 0, 3));
}

/// One that hangs has its place and no more: the others are finished.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_holds_nobody_up() {
    let stage = Stage::new();
    let effects = Effects::default();
    let onceward = stage.process();
    abandon(&stage, &effects, "hangs", 1).await;
    tokio::time::advance(LEASE * 2).await;
    let work = {
        let effects = effects.clone();
        move |lease: Lease| {
            let stands_after = (lease.id().key() == "hangs").then_some(1);
            operation(lease, effects.clone(), stands_after)
        }
    };
    let pace = Pace { grace: Duration::ZERO, ..Pace::default() };
    let completer = Completer::new(onceward).operation("charge", policy(), work).unwrap().pace(pace);
    let later = async {
        tokio::time::sleep(secs(60)).await;
        abandon(&stage, &effects, "later", 1).await;
        tokio::time::sleep(secs(60)).await;
    };
    tokio::select! {
        () = completer.run_until(std::future::pending()) => unreachable!("nobody stops it"),
        () = later => {}
    }
    assert_eq!(completer.counts().finished, 1);
    assert!(effects.are_whole("later"));
}

/// A store that fails in the middle of it costs time and nothing else.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_costs_nothing_but_time() {
    for fault in [Fault::LoseReply, Fault::LoseWrite, Fault::Refuse] {
        for at in 0..5 {
            let stage = Stage::new();
            let effects = Effects::default();
            abandon(&stage, &effects, "k", 1).await;
            tokio::time::advance(LEASE * 2).await;
            let onceward = stage.process();
            let completer = completer(&onceward, &effects);
            stage.store.script(std::iter::repeat_n(Fault::Pass, at).chain([fault]));
            completer.run_until(tokio::time::sleep(secs(120))).await;
            assert!(effects.are_whole("k"), "{fault:?} at {at}: {:?}", effects.of("k"));
            let receipt = onceward.show(&id("k")).await.unwrap().unwrap();
            assert_eq!(receipt.status.state(), State::Done, "{fault:?} at {at}");
        }
    }
}

/// A service that is told about one intent says what became of it.
#[tokio::test(start_paused = true)]
async fn one_intent_is_completed_by_its_name() {
    let stage = Stage::new();
    let effects = Effects::default();
    let onceward = stage.process();
    let own = completer(&onceward, &effects);
    abandon(&stage, &effects, "one", 2).await;
    assert_eq!(own.complete(&id("one")).await.unwrap(), Completion::NotLeft, "its lease is alive");
    tokio::time::advance(LEASE * 2).await;
    let none = Completer::new(onceward.clone());
    assert_eq!(none.complete(&id("one")).await.unwrap(), Completion::Unregistered);
    let other = stage.process();
    let failing = async |_: Lease| Ok(Outcome::failed("declined"));
    let queue = Arc::new(Policy::queue().lease(LEASE).unwrap());
    let failing = Completer::new(other.clone()).operation("charge", queue, failing).unwrap();
    assert!(matches!(failing.complete(&id("one")).await.unwrap(), Completion::Failed(_)));
    tokio::time::advance(LEASE * 2).await;
    let one = id("one");
    let (first, second) = tokio::join!(own.complete(&one), own.complete(&one));
    let both = [first.unwrap(), second.unwrap()];
    assert_eq!(both.iter().filter(|one| **one == Completion::Finished).count(), 1, "{both:?}");
    assert!(effects.are_whole("one"));
    for (key, expected) in [("one", Completion::NotLeft), ("none", Completion::NotLeft)] {
        assert_eq!(own.complete(&id(key)).await.unwrap(), expected);
    }
    let hold = Ask::new(id("held"), Fingerprint::of(b""), Arc::new(Policy::http().lease(LEASE).unwrap()));
    assert!(matches!(other.claim(hold).await.unwrap(), Claimed::Yes(_)));
    tokio::time::advance(LEASE * 2).await;
    assert_eq!(own.complete(&id("held")).await.unwrap(), Completion::Held);
}
