//! Duplicates: while running, afterwards, in this process and in others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::{Answer, OnDuplicate, Outcome, Policy, Refusal};

use crate::cluster::{Cluster, ask, ask_for, never, paid, secs};

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_same_outcome_and_runs_nothing() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let first = onceward.run(ask("k", &Policy::http()), paid).await.unwrap().into_result().unwrap();
    assert!(!first.replayed);
    for process in [onceward, cluster.process()] {
        let again = process.run(ask("k", &Policy::http()), never).await.unwrap().into_result().unwrap();
        assert!(again.replayed);
        assert_eq!((again.outcome, again.fence), (first.outcome.clone(), first.fence));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_replay_in_the_same_process_needs_no_store() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    onceward.run(ask("k", &Policy::http()), paid).await.unwrap();
    onceward.run(ask("k", &Policy::http()), never).await.unwrap().into_result().unwrap();
    let before = onceward.counts();
    onceward.run(ask("k", &Policy::http()), never).await.unwrap().into_result().unwrap();
    let after = onceward.counts();
    assert_eq!((after.store_batches, after.store_loads), (before.store_batches, before.store_loads));
    assert_eq!(after.replays_cached, before.replays_cached + 1);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_duplicates_of_a_running_intent_cost_two_store_trips() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let runs = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10_000 {
        let (onceward, runs) = (onceward.clone(), runs.clone());
        tasks.spawn(async move {
            let work = async move |_| {
                tokio::time::sleep(secs(1)).await;
                runs.fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::succeeded("paid"))
            };
            onceward.run(ask("hot", &Policy::http()), work).await.unwrap().into_result().unwrap()
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(answers.iter().filter(|completed| !completed.replayed).count(), 1);
    assert!(
        answers.iter().all(|completed| completed.outcome == Outcome::succeeded("paid")
            && completed.fence == answers[0].fence)
    );
    let counts = onceward.counts();
    assert_eq!((counts.store_batches, counts.store_loads), (2, 0), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn another_body_under_the_same_key_is_refused_while_running_and_after() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let first = tokio::spawn({
        let here = here.clone();
        async move {
            here.run(ask_for("k", "10 EUR", &Policy::http()), async |_| {
                tokio::time::sleep(secs(5)).await;
                Ok(Outcome::succeeded("paid"))
            })
            .await
        }
    });
    tokio::time::sleep(secs(1)).await;
    for process in [&here, &elsewhere] {
        let refused = process.run(ask_for("k", "99 EUR", &Policy::http()), never).await.unwrap();
        assert_eq!(refused, Answer::Refused(Refusal::KeyReused), "while running");
    }
    first.await.unwrap().unwrap().into_result().unwrap();
    for process in [&here, &elsewhere, &cluster.process()] {
        let refused = process.run(ask_for("k", "99 EUR", &Policy::http()), never).await.unwrap();
        assert_eq!(refused, Answer::Refused(Refusal::KeyReused), "afterwards");
    }
}

/// The first one here may itself be the one with the wrong body: a duplicate is judged by what the
/// store holds, never by the first request here.
#[tokio::test(start_paused = true)]
async fn a_duplicate_is_not_judged_by_an_unconfirmed_claim() {
    let cluster = Cluster::new();
    cluster.process().run(ask_for("k", "right", &Policy::http()), paid).await.unwrap();
    let onceward = cluster.process();
    cluster.store.close_gate();
    let wrong = tokio::spawn({
        let onceward = onceward.clone();
        async move { onceward.run(ask_for("k", "wrong", &Policy::http()), never).await }
    });
    crate::cluster::run_ready_tasks().await;
    let right = tokio::spawn({
        let onceward = onceward.clone();
        async move { onceward.run(ask_for("k", "right", &Policy::http()), never).await }
    });
    crate::cluster::run_ready_tasks().await;
    cluster.store.open_gate();
    assert_eq!(wrong.await.unwrap().unwrap(), Answer::Refused(Refusal::KeyReused));
    assert!(right.await.unwrap().unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_in_another_process_waits_and_is_answered_soon_after() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let start = tokio::time::Instant::now();
    let first = tokio::spawn(async move {
        here.run(ask("k", &Policy::http()), async |_| {
            tokio::time::sleep(secs(10)).await;
            Ok(Outcome::succeeded("paid"))
        })
        .await
    });
    tokio::time::sleep(secs(1)).await;
    let second = elsewhere.run(ask("k", &Policy::http()), never).await.unwrap().into_result().unwrap();
    assert!(second.replayed);
    let waited = start.elapsed();
    assert!(waited >= secs(10) && waited < secs(11), "{waited:?}");
    first.await.unwrap().unwrap().into_result().unwrap();
    let counts = elsewhere.counts();
    assert_eq!((counts.waits_remote, counts.claims), (1, 0));
    assert!(counts.store_loads < 60, "the tick must adapt: {} loads in ten seconds", counts.store_loads);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_is_told_when_to_come_back() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let policy = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Wait(secs(2))).build().unwrap();
    tokio::spawn({
        let (here, policy) = (here.clone(), policy.clone());
        async move { here.run(ask("k", &policy), async |_| std::future::pending().await).await }
    });
    tokio::time::sleep(secs(1)).await;
    for process in [here, elsewhere] {
        let start = tokio::time::Instant::now();
        let refused = process.run(ask("k", &policy), never).await.unwrap();
        let Answer::Refused(Refusal::InProgress { retry_after }) = refused else { panic!("{refused:?}") };
        assert!(retry_after > secs(15) && retry_after <= secs(30), "{retry_after:?}");
        assert_eq!(start.elapsed().as_secs(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_answered_at_once() {
    let cluster = Cluster::new();
    let policy = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    tokio::spawn({
        let (here, policy) = (here.clone(), policy.clone());
        async move { here.run(ask("k", &policy), async |_| std::future::pending().await).await }
    });
    tokio::time::sleep(secs(1)).await;
    for process in [here, elsewhere] {
        let start = tokio::time::Instant::now();
        let refused = process.run(ask("k", &policy), never).await.unwrap();
        assert!(matches!(refused, Answer::Refused(Refusal::InProgress { .. })), "{refused:?}");
        assert_eq!(start.elapsed().as_millis(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_first_one_gives_up_one_waiter_runs_and_the_others_get_its_outcome() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let runs = Arc::new(AtomicUsize::new(0));
    let first = tokio::spawn({
        let here = here.clone();
        async move {
            here.run(ask("k", &Policy::http()), async |_| {
                tokio::time::sleep(secs(3)).await;
                Err(onceward::Stopped::before_effect("no connection"))
            })
            .await
        }
    });
    tokio::time::sleep(secs(1)).await;
    let mut waiters = tokio::task::JoinSet::new();
    for at in 0..20 {
        let process = if at % 2 == 0 { here.clone() } else { elsewhere.clone() };
        let runs = runs.clone();
        waiters.spawn(async move {
            let work = async move |_| {
                runs.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(secs(1)).await;
                Ok(Outcome::succeeded("second try"))
            };
            process.run(ask("k", &Policy::http()), work).await.unwrap().into_result().unwrap()
        });
    }
    assert!(first.await.unwrap().is_err());
    let answers = waiters.join_all().await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(answers.iter().all(|completed| completed.outcome == Outcome::succeeded("second try")));
}

#[tokio::test(start_paused = true)]
async fn a_cached_answer_needs_no_store() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = Policy::http();
    assert_eq!(onceward.cached_answer(&ask("k", &policy)), None);
    onceward.run(ask("k", &policy), paid).await.unwrap();
    assert_eq!(onceward.cached_answer(&ask("k", &policy)), None, "only what was replayed is cached");
    let replay = onceward.run(ask("k", &policy), never).await.unwrap();
    let batches = cluster.store.batches().len();
    assert_eq!(onceward.cached_answer(&ask("k", &policy)), Some(replay));
    let other = onceward.cached_answer(&ask_for("k", "something else", &policy));
    assert_eq!(other, Some(Answer::Refused(Refusal::KeyReused)));
    assert_eq!(cluster.store.batches().len(), batches);
    tokio::time::sleep(secs(24 * 3_600)).await;
    assert_eq!(onceward.cached_answer(&ask("k", &policy)), None, "past its retention");
}

#[tokio::test(start_paused = true)]
async fn answering_without_running_gives_the_answer_of_others_and_never_runs() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = Policy::http();
    assert_eq!(onceward.answer_without_running(&ask("k", &policy)).await.unwrap(), None);
    let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
    let running = {
        let (onceward, policy) = (onceward.clone(), policy.clone());
        tokio::spawn(async move {
            let work = async |_| {
                gone_on.await.unwrap();
                Ok(Outcome::succeeded("paid"))
            };
            onceward.run(ask("k", &policy), work).await
        })
    };
    crate::cluster::run_ready_tasks().await;
    // In this process and in another, while it runs.
    let answering: Vec<_> = [onceward.clone(), cluster.process()]
        .into_iter()
        .map(|process| {
            let policy = policy.clone();
            tokio::spawn(
                async move { process.answer_without_running(&ask("k", &policy)).await.unwrap().unwrap() },
            )
        })
        .collect();
    let refused = onceward.answer_without_running(&ask_for("k", "something else", &policy)).await.unwrap();
    assert_eq!(refused, Some(Answer::Refused(Refusal::KeyReused)));
    go_on.send(()).unwrap();
    let outcome = running.await.unwrap().unwrap().into_result().unwrap().outcome;
    for answered in answering {
        let completed = answered.await.unwrap().into_result().unwrap();
        assert!(completed.replayed && completed.outcome == outcome);
    }
    // And afterwards, from the store.
    assert!(
        cluster
            .process()
            .answer_without_running(&ask("k", &policy))
            .await
            .unwrap()
            .unwrap()
            .into_result()
            .unwrap()
            .replayed
    );
    assert_eq!(onceward.counts().claims, 1);
}
