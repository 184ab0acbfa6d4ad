//! Retention, tombstones, sweeping.

use std::time::Duration;

use onceward::{
    Answer, Cursor, Filter, OnExpired, OnUnknown, Outcome, Policy, RETENTION_MAX, Refusal, Retention, Scan,
    ScanTarget, State, Store, Sweep,
};

use crate::cluster::{Cluster, Fault, ask, ask_for, id, never, paid, run_ready_tasks, secs};

fn keep(secs: u64) -> Policy {
    Policy::http().to_builder().with_retention(Retention::For(Duration::from_secs(secs))).build().unwrap()
}

fn refuse_late(secs: u64, tombstone: u64) -> Policy {
    keep(secs)
        .to_builder()
        .with_on_expired(OnExpired::Refuse(Retention::For(Duration::from_secs(tombstone))))
        .build()
        .unwrap()
}

async fn states(cluster: &Cluster) -> Vec<State> {
    let of = ScanTarget::Matching(Filter::default());
    let page = cluster.store.scan(&Scan::new(of, 1_000).with_after(None::<Cursor>)).await.unwrap();
    let mut states: Vec<_> = page.found.into_iter().map(|(_, found)| found.state).collect();
    states.sort();
    states
}

#[tokio::test(start_paused = true)]
async fn the_retention_is_told_and_honoured_to_its_end_also_from_the_cache() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let first = onceward.run(ask("k", &keep(60)), paid).await.unwrap().into_result().unwrap();
    assert_eq!(first.expires_in, Some(secs(60)));
    tokio::time::sleep(secs(59)).await;
    let replay = onceward.run(ask("k", &keep(60)), never).await.unwrap().into_result().unwrap();
    assert_eq!(replay.expires_in, Some(secs(1)));
    tokio::time::sleep(secs(1)).await;
    let second = onceward
        .run(ask("k", &keep(60)), async |_| Ok(Outcome::succeeded("again")))
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert!(!second.replayed && second.fence > first.fence);
    assert_eq!(onceward.counts().takeovers, 1);
}

#[tokio::test(start_paused = true)]
async fn each_verdict_has_its_own_retention() {
    let onceward = Cluster::new().process();
    let policy = keep(60).to_builder().with_retention_failed(Retention::For(secs(5))).build().unwrap();
    let failed = onceward
        .run(ask("f", &policy), async |_| Ok(Outcome::failed("no")))
        .await
        .unwrap()
        .into_result()
        .unwrap();
    assert_eq!(failed.expires_in, Some(secs(5)));
    let kept = onceward.run(ask("l", &Policy::ledger()), paid).await.unwrap().into_result().unwrap();
    assert_eq!(kept.expires_in, None);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_can_say_how_long_it_is_kept() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let briefly = async |_| Ok(Outcome::succeeded("x").with_retention(Retention::For(secs(5))));
    // Also where the answer to the completion is lost, and its write is recognised by what it wrote.
    cluster.store.script([Fault::Pass, Fault::LoseReply]);
    let completed = onceward.run(ask("k", &Policy::ledger()), briefly).await.unwrap().into_result().unwrap();
    assert_eq!(completed.expires_in, Some(secs(5)));
    tokio::time::sleep(secs(1)).await;
    assert_eq!((onceward.counts().completions, onceward.counts().fenced_off), (1, 0));
    let replay =
        cluster.process().run(ask("k", &Policy::ledger()), never).await.unwrap().into_result().unwrap();
    assert!(replay.expires_in.unwrap() <= secs(4));
    let forever = async |_| Ok(Outcome::failed("y").with_retention(Retention::Forever));
    let completed = onceward.run(ask("l", &keep(60)), forever).await.unwrap().into_result().unwrap();
    assert_eq!(completed.expires_in, None);
    // The effect has happened: what cannot be kept that long is kept as long as possible.
    for (asked, kept) in [(Duration::ZERO, Duration::from_millis(1)), (Duration::MAX, RETENTION_MAX)] {
        let outcome = Outcome::succeeded("z").with_retention(Retention::For(asked));
        assert_eq!(outcome.retention(), Some(Retention::For(kept)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_past_its_retention_can_mean_something_else() {
    let onceward = Cluster::new().process();
    onceward.run(ask_for("k", "one", &keep(10)), paid).await.unwrap();
    tokio::time::sleep(secs(11)).await;
    assert!(
        !onceward.run(ask_for("k", "two", &keep(10)), paid).await.unwrap().into_result().unwrap().replayed
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_key_is_refused_before_and_after_the_sweep_until_its_tombstone_goes() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = refuse_late(10, 100);
    onceward.run(ask("k", &policy), paid).await.unwrap();
    tokio::time::sleep(secs(11)).await;
    assert_eq!(onceward.run(ask("k", &policy), never).await.unwrap(), Answer::Refused(Refusal::KeyExpired));
    let swept = onceward.sweep(&Sweep::default()).await.unwrap();
    assert_eq!((swept.gone, swept.removed, swept.finished), (1, 0, true));
    assert_eq!(states(&cluster).await, [State::Gone]);
    assert_eq!(onceward.run(ask("k", &policy), never).await.unwrap(), Answer::Refused(Refusal::KeyExpired));
    tokio::time::sleep(secs(101)).await;
    let swept = onceward.sweep(&Sweep::default()).await.unwrap();
    assert_eq!((swept.gone, swept.removed), (0, 1));
    assert!(!onceward.run(ask("k", &policy), paid).await.unwrap().into_result().unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_takes_only_what_is_due_in_bounded_slices() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    for at in 0..100 {
        onceward.run(ask(&format!("short{at}"), &keep(10)), paid).await.unwrap();
        onceward.run(ask(&format!("long{at}"), &keep(1_000)), paid).await.unwrap();
    }
    tokio::time::sleep(secs(11)).await;
    let slice = Sweep::default().with_slice_records(16).with_slices_max(2);
    let swept = onceward.sweep(&slice).await.unwrap();
    assert_eq!((swept.seen, swept.removed, swept.gone, swept.finished), (32, 32, 0, false));
    let swept = onceward.sweep(&slice.with_slices_max(100)).await.unwrap();
    assert_eq!((swept.removed, swept.finished), (68, true));
    assert_eq!(onceward.sweep(&Sweep::default()).await.unwrap().seen, 0);
    assert_eq!(states(&cluster).await.len(), 100);
}

/// Claims that nobody came back for stay in place, and are more than one sweep may look at.
#[tokio::test(start_paused = true)]
async fn what_stays_in_place_does_not_hide_what_is_due_behind_it() {
    let cluster = Cluster::new();
    let (doomed, kill) = cluster.killable_process();
    let abandoned =
        keep(60).to_builder().with_lease(secs(10)).with_on_unknown(OnUnknown::Retry).build().unwrap();
    for at in 0..50 {
        let (doomed, ask) = (doomed.clone(), ask(&format!("abandoned{at}"), &abandoned));
        tokio::spawn(async move { doomed.run(ask, async |_| std::future::pending().await).await });
    }
    run_ready_tasks().await;
    kill.now();
    let onceward = cluster.process();
    onceward.run(ask("done", &keep(20)), paid).await.unwrap();
    tokio::time::sleep(secs(21)).await;
    let slice = Sweep::default().with_slice_records(8).with_slices_max(2);
    let (mut seen, mut removed) = (0, 0);
    for _ in 0..4 {
        let swept = onceward.sweep(&slice).await.unwrap();
        (seen, removed) = (seen + swept.seen, removed + swept.removed);
    }
    assert_eq!((seen, removed), (51, 1));
    assert_eq!(onceward.sweep(&slice).await.unwrap().seen, 16, "the next one begins at the beginning");
}

#[tokio::test(start_paused = true)]
async fn a_sweep_leaves_living_leases_alone_and_writes_down_dead_ones() {
    let cluster = Cluster::new();
    let lease = |policy: Policy| policy.to_builder().with_lease(secs(10)).build().unwrap();
    let (doomed, kill) = cluster.killable_process();
    for (key, policy) in [
        ("held", keep(60)),
        ("free", keep(60).to_builder().with_on_unknown(OnUnknown::Retry).build().unwrap()),
    ] {
        let (doomed, ask) = (doomed.clone(), ask(key, &lease(policy)));
        tokio::spawn(async move { doomed.run(ask, async |_| std::future::pending().await).await });
    }
    let onceward = cluster.process();
    tokio::spawn({
        let (onceward, ask) = (onceward.clone(), ask("alive", &lease(keep(60))));
        async move { onceward.run(ask, async |_| std::future::pending().await).await }
    });
    run_ready_tasks().await;
    kill.now();
    tokio::time::sleep(secs(25)).await;
    let swept = onceward.sweep(&Sweep::default()).await.unwrap();
    assert_eq!((swept.seen, swept.unknown, swept.removed), (2, 1, 0));
    assert_eq!(onceward.receipt(&id("held")).await.unwrap().unwrap().status.state(), State::Unknown);
    assert_eq!(onceward.receipt(&id("free")).await.unwrap().unwrap().status.state(), State::Held);
    assert_eq!(onceward.receipt(&id("alive")).await.unwrap().unwrap().status.state(), State::Held);
    let late = Sweep::default().with_abandoned_after(secs(5));
    assert_eq!(onceward.sweep(&late).await.unwrap().removed, 1, "nobody asked for it again");
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_goes_on_by_itself() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    tokio::spawn({
        let onceward = onceward.clone();
        async move { onceward.sweep_forever(Sweep::default(), secs(5)).await }
    });
    for at in 0..50 {
        onceward.run(ask(&format!("k{at}"), &keep(10)), paid).await.unwrap();
    }
    tokio::time::sleep(secs(20)).await;
    assert_eq!(states(&cluster).await, []);
}
