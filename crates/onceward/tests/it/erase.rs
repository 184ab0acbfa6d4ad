//! Erasures, and unknown outcomes: what a person does about receipts, through the engine.

use onceward::{
    Answer, Changed, Erase, ErrorKind, Filter, Id, OnUnknown, Onceward, Outcome, Policy, Refusal, Settlement,
    State, Stopped, Sweep, UnknownCount,
};

use crate::cluster::{Cluster, ask, id, paid, secs};

fn hold() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Hold).with_lease(secs(10)).build().unwrap()
}

async fn state(onceward: &Onceward, id: &Id) -> Option<State> {
    onceward.receipt(id).await.unwrap().map(|receipt| receipt.status.state())
}

#[tokio::test(start_paused = true)]
async fn an_erased_intent_and_its_steps_say_nothing_and_never_run_again() {
    let onceward = Cluster::new().process();
    let order = async || {
        let work = async |lease: onceward::Lease| {
            let charge = lease.step("charge", async |charge| {
                charge.step("ledger", async |_| Ok(Outcome::succeeded("ledger-1"))).await?.into_result()?;
                Ok(Outcome::succeeded("charge-1"))
            });
            charge.await?.into_result()?;
            Ok(Outcome::succeeded("secret"))
        };
        onceward.run(ask("order", &hold()), work).await.unwrap()
    };
    // Twice: a replayed answer is in the cache.
    assert!(matches!(order().await, Answer::Completed(_)));
    assert!(matches!(order().await, Answer::Completed(completed) if completed.replayed));

    assert_eq!(onceward.erase(&id("order"), &Erase::new()).await.unwrap(), Changed::Applied);
    assert!(
        matches!(order().await, Answer::Refused(Refusal::ResponseNotStored { note, .. }) if note == "erased")
    );
    let step = id("order").step("charge").unwrap();
    for id in [id("order"), step.clone(), step.step("ledger").unwrap()] {
        let receipt = onceward.receipt(&id).await.unwrap().unwrap();
        assert!(receipt.status.outcome().unwrap().body().is_empty(), "{id:?} still says something");
    }

    // Only reopening frees the key, and takes the steps with it.
    let reopen = Erase::new().with_reopen(true);
    assert_eq!(onceward.erase(&id("order"), &reopen).await.unwrap(), Changed::Applied);
    assert_eq!(state(&onceward, &step).await, None);
    assert!(matches!(order().await, Answer::Completed(completed) if !completed.replayed));
    assert_eq!(onceward.counts().erased, 6);
}

#[tokio::test(start_paused = true)]
async fn what_runs_or_waits_is_not_erased_and_an_unknown_outcome_stays_unknown() {
    let onceward = Cluster::new().process();
    let claimed = onceward.claim(ask("held", &hold())).await.unwrap();
    assert!(matches!(claimed, onceward::Claimed::Granted(_)));
    onceward.enqueue(ask("waiting", &hold()).with_input("input")).await.unwrap();
    for key in ["held", "waiting"] {
        let error = onceward.erase(&id(key), &Erase::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{key}: {error}");
    }
    let failed = onceward.run(ask("unknown", &hold()).with_input("card 4242"), async |_| {
        Err(Stopped::unknown("no answer for card 4242"))
    });
    failed.await.unwrap_err();
    let reopen = Erase::new().with_reopen(true);
    onceward.erase(&id("unknown"), &reopen).await.expect_err("an unknown outcome is settled, not forgotten");
    assert_eq!(onceward.erase(&id("unknown"), &Erase::new()).await.unwrap(), Changed::Applied);
    let receipt = onceward.receipt(&id("unknown")).await.unwrap().unwrap();
    assert_eq!(
        (receipt.status.state(), receipt.status.job(), receipt.status.note()),
        (State::Unknown, None, "")
    );
    let asked = onceward.run(ask("unknown", &hold()), paid).await.unwrap();
    assert_eq!(asked, Answer::Refused(Refusal::OutcomeUnknown));
    assert_eq!(onceward.erase(&id("nobody"), &Erase::new()).await.unwrap(), Changed::NotOwner(None));
}

#[tokio::test(start_paused = true)]
async fn all_receipts_of_a_scope_are_erased_page_by_page() {
    let onceward = Cluster::new().process();
    for number in 0..5 {
        onceward.run(ask(&format!("k{number}"), &hold()), paid).await.unwrap().into_result().unwrap();
    }
    onceward.enqueue(ask("waiting", &hold()).with_input("input")).await.unwrap();
    let filter = Filter::default().with_scope(id("k0").scope().to_owned());
    let (mut erased, mut refused, mut after) = (0, Vec::new(), None);
    loop {
        let page = onceward.erase_matching(&filter, &Erase::new(), after, 2).await.unwrap();
        erased += page.erased.len();
        refused.extend(page.refused.into_iter().map(|(id, _)| id.key().to_owned()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((erased, refused), (5, vec!["waiting".to_owned()]));
    let again = onceward.run(ask("k3", &hold()), paid).await.unwrap();
    assert!(matches!(again, Answer::Refused(Refusal::ResponseNotStored { .. })), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn unknown_outcomes_are_counted_by_another_process_and_given_up_only_if_told_so() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    for key in ["one", "two"] {
        let run =
            onceward.run(ask(key, &hold()), async |_| Err(Stopped::unknown("the service answered 504")));
        run.await.unwrap_err();
        tokio::time::advance(secs(60)).await;
    }
    // A lease that ended, and that was not asked for since.
    onceward.claim(ask("silent", &hold())).await.unwrap();
    tokio::time::advance(secs(60)).await;
    let restarted = cluster.process();
    let UnknownCount { unknown, dead, oldest, complete, .. } = restarted.count_unknown(1_000).await.unwrap();
    assert_eq!((unknown, dead, complete), (3, 0, true));
    assert!(oldest.unwrap() >= secs(180) && oldest.unwrap() < secs(181), "{oldest:?}");
    assert!(!restarted.count_unknown(1).await.unwrap().complete, "one record is not enough to know");

    let swept = restarted.sweep(&Sweep::default()).await.unwrap();
    assert_eq!((swept.unknown, swept.given_up), (1, 0), "off by default");
    let swept = restarted.sweep(&Sweep::default().with_unknown_after(secs(100))).await.unwrap();
    assert_eq!(swept.given_up, 2, "the third is too young");
    let count = restarted.count_unknown(1_000).await.unwrap();
    assert_eq!((count.unknown, count.dead), (1, 2), "what was given up is still unknown");
    let refused = restarted.run(ask("one", &hold()), paid).await.unwrap();
    assert!(matches!(refused, Answer::Refused(Refusal::Dead { note }) if note.contains("answered 504")));

    let error = restarted.retry_dead(&id("one")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "it may have taken effect: {error}");
    let fence = restarted.receipt(&id("one")).await.unwrap().unwrap().status.fence();
    restarted.settle(&id("one"), fence, &Settlement::NotDone, &hold()).await.unwrap();
    assert!(matches!(restarted.run(ask("one", &hold()), paid).await.unwrap(), Answer::Completed(_)));
}
