//! Checks of a receipt that is written as it is to be when its transaction begins, because its outcome is known before
//! the work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{
    Answer, Applied, Ask, Claimed, Due, Fault, Id, Lease, OnUnknown, Outcome, Policy, Seen, State, Stopped,
    Swap, Swapped, Transactions, Version,
};

use super::super::drops::drop_after;
use super::super::races::threads;
use super::super::trial::{Answered, Checked, DEADLINE, FAR, Wrong, creation, ensure, held, record, same};
use super::fixture::{SHORT, TransactionFixture, ask, done, id, ran, said};
use super::{Harness, Tx};

/// How many times a commit is polled before it is dropped, at most.
const POLLS_MAX: usize = 16;

pub(super) async fn it_is_seen_only_after_the_commit<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let (written, undone) = (id("1"), id("2"));
    let (mut tx, version) = fixture.win(&creation(&written, done())).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.is_absent(&written, "under way").await?;
    fixture.count_is("a", 0).await?;
    commit(&fixture, tx, &written, version).await?;
    // The fence of such a receipt is its version, which therefore does not change with the commit.
    fixture.trial.find_as(&written, version, &done()).await?;
    fixture.count_is("a", 1).await?;
    for round in 0..2 {
        let (mut tx, _) = fixture.win(&creation(&undone, done())).await?;
        fixture.write(&mut tx, "a").await?;
        fixture.undo(tx, round).await;
        fixture.is_absent(&undone, "undone").await?;
    }
    fixture.count_is("a", 1).await
}

pub(super) async fn it_is_due_when_it_says<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    for (number, due_in) in [Some(FAR), Some(FAR * 100), None].into_iter().enumerate() {
        let id = id(&number.to_string());
        let write = creation(&id, record(State::Done, due_in, "completion"));
        let begun = fixture.transactions().begin(&write, None, DEADLINE).await;
        let (tx, swapped) = begun.map_err(|fault| Wrong(format!("did not begin: {}", said(&fault))))?;
        let Swapped::Won(version) = swapped else {
            return Err(Wrong(format!("nothing is there, and it got {swapped:?}")));
        };
        commit(&fixture, tx, &id, version).await?;
        let found = fixture.trial.find(&id).await?;
        let fits = match (due_in, found.due) {
            (Some(due_in), Due::In(left)) => left <= due_in + SHORT && left + DEADLINE >= due_in,
            (None, due) => due == Due::Never,
            _ => false,
        };
        ensure!(fits, "due in {due_in:?}, found {:?}", found.due);
    }
    Ok(())
}

/// Where a record was removed a moment ago, and its version is still remembered.
pub(super) async fn it_may_be_where_another_was<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    let first = fixture.trial.create(&id, held("first")).await?;
    fixture.trial.remove(&id, first).await?;
    let (mut tx, version) = fixture.win(&creation(&id, done())).await?;
    ensure!(version > first, "written as {version:?}, had {first:?} before");
    fixture.write(&mut tx, "a").await?;
    commit(&fixture, tx, &id, version).await?;
    fixture.trial.find_as(&id, version, &done()).await?;
    fixture.count_is("a", 1).await
}

pub(super) async fn the_second_waits_and_loses<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    let (mut tx, version) = fixture.win(&creation(&id, done())).await?;
    fixture.write(&mut tx, "a").await?;
    let (second, write) = (fixture.clone(), creation(&id, done()));
    let mut second = tokio::spawn(async move { second.begin(&write).await });
    ensure!(
        tokio::time::timeout(SHORT, &mut second).await.is_err(),
        "the second was answered while the first was under way"
    );
    match fixture.begin_within(&creation(&id, done()), SHORT).await {
        Err(Fault::Busy) => {}
        Err(fault) => ensure!(false, "another has the id, the third got {}", said(&fault)),
        Ok((_, swapped)) => ensure!(false, "another has the id, the third got {swapped:?}"),
    }
    commit(&fixture, tx, &id, version).await?;
    let (tx, answer) = second.await.map_err(|_| Wrong("the second panicked".into()))??;
    fixture.rollback(tx).await;
    match answer {
        Answered::Lost(Some(found)) => same(&id, &found, version, &done())?,
        answer => ensure!(false, "the first has committed, the second got {answer:?}"),
    }
    fixture.count_is("a", 1).await
}

pub(super) async fn a_receipt_that_is_gone_commits_nothing<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let id = id("1");
    let begin = async || {
        let (mut tx, version) = fixture.win(&creation(&id, done())).await?;
        fixture.write(&mut tx, "a").await?;
        Checked::Ok((tx, version))
    };
    let (tx, version) = begin().await?;
    refused(&fixture, tx, &id, Version(version.0 + 1)).await?;

    let (mut tx, version) = begin().await?;
    let again = Swap { seen: Seen::Version(version), ..creation(&id, done()) };
    fixture.swap_one(&mut tx, &again).await?;
    refused(&fixture, tx, &id, version).await?;

    let (mut tx, version) = begin().await?;
    let removal = Swap { id: id.clone(), seen: Seen::Version(version), new: None };
    fixture.swap_one(&mut tx, &removal).await?;
    refused(&fixture, tx, &id, version).await?;

    fixture.is_absent(&id, "none of them had its receipt").await?;
    fixture.count_is("a", 0).await
}

/// The next to ask waits until its fate is certain, and then finds both or neither.
pub(super) async fn a_dropped_commit_is_whole_or_nothing<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    for polls in 0..POLLS_MAX {
        let name = polls.to_string();
        let id = id(&name);
        let (mut tx, version) = fixture.win(&creation(&id, done())).await?;
        fixture.write(&mut tx, &name).await?;
        drop_after(polls, fixture.transactions().commit_written(tx, &id, version)).await;
        let (tx, answer) = fixture.begin(&creation(&id, done())).await?;
        let committed = match answer {
            Answered::Won(_) => 0,
            Answered::Lost(Some(found)) => {
                same(&id, &found, version, &done())?;
                1
            }
            Answered::Lost(None) => return Err(Wrong(format!("{id:?}: lost to nothing"))),
        };
        fixture.rollback(tx).await;
        fixture.count_is(&name, committed).await?;
    }
    Ok(())
}

/// Threads with an engine each, as of processes of their own, and two callers in each; half of them know their outcome
/// beforehand.
pub(super) async fn duplicates_run_once<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    const INTENTS: usize = 6;
    let ran = threads(&fixture, |fixture, thread| async move {
        let engine = fixture.engine()?;
        let mut ran_here = 0;
        for number in 0..INTENTS {
            let key = number.to_string();
            let one = async |caller: usize| {
                if (caller + thread).is_multiple_of(2) {
                    return fixture.transact(&engine, ask(&key)).await;
                }
                known(&fixture, &engine, ask(&key)).await
            };
            let (first, second) = tokio::join!(one(0), one(1));
            ran_here += usize::from(!first?.replayed) + usize::from(!second?.replayed);
        }
        Ok(ran_here)
    })
    .await?;
    for number in 0..INTENTS {
        fixture.count_is(&number.to_string(), 1).await?;
    }
    let ran: usize = ran.into_iter().sum();
    ensure!(ran == INTENTS, "{INTENTS} intents, and {ran} calls say that they ran one");
    Ok(())
}

pub(super) async fn outcome_and_write_commit_together<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    let first = known(&fixture, &engine, ask("a")).await?;
    ensure!(!first.replayed, "the first of its kind got {first:?}");
    fixture.count_is("a", 1).await?;
    // Another engine, which remembers nothing: it is in the database.
    let again = known(&fixture, &fixture.engine()?, ask("a")).await?;
    ensure!(again.replayed && again.outcome == first.outcome, "a retry got {again:?}, first was {first:?}");
    ensure!(again.fence == first.fence, "a retry got fence {}, first was {}", again.fence, first.fence);
    let again = fixture.transact(&fixture.engine()?, ask("a")).await?;
    ensure!(again.replayed && again.outcome == first.outcome, "a retry got {again:?}, first was {first:?}");
    let counts = engine.counts();
    ensure!(counts.claims == 1 && counts.completions == 1, "one run, and the counts are {counts:?}");
    fixture.count_is("a", 1).await
}

pub(super) async fn stopped_work_leaves_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let engine = fixture.engine()?;
    for stopped in [Stopped::before_effect("no"), Stopped::unknown("perhaps")] {
        let runs = AtomicU64::new(0);
        let work = async |_: Lease, mut tx: Tx<B>| {
            runs.fetch_add(1, Ordering::SeqCst);
            fixture.harness.write(&mut tx, "a").await?;
            Err(stopped.clone())
        };
        let answer = engine
            .transact_with_outcome(fixture.transactions(), ask("a"), Outcome::succeeded("a"), work)
            .await;
        let runs = runs.load(Ordering::SeqCst);
        ensure!(runs == 1 && answer.is_err(), "stopped for good, it ran {runs} times and got {answer:?}");
        fixture.count_is("a", 0).await?;
        fixture.is_absent(&id("a"), "its work was stopped").await?;
    }
    let ran = known(&fixture, &engine, ask("a")).await?;
    ensure!(!ran.replayed, "nothing had happened, and a retry got {ran:?}");
    fixture.count_is("a", 1).await
}

/// What is there already is taken over, waited for or refused, as by a transaction whose outcome is not known.
pub(super) async fn what_is_there_is_claimed<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let policy = Policy::http()
        .to_builder()
        .with_on_unknown(OnUnknown::Retry)
        .with_lease(onceward::LEASE_MIN)
        .build()?;
    let lapsing = |name: &str| Ask::new(id(name), *ask(name).fingerprint(), policy.clone());
    let engine = fixture.engine()?;
    let Claimed::Granted(ticket) = engine.claim(lapsing("a")).await? else {
        return Err(Wrong("nobody has it, and it was not claimed".into()));
    };
    fixture.trial.until_over(&id("a")).await?;
    let ran = known(&fixture, &fixture.engine()?, lapsing("a")).await?;
    ensure!(!ran.replayed && ran.fence > ticket.fence(), "over {}, the next got {ran:?}", ticket.fence());
    fixture.count_is("a", 1).await?;

    engine.enqueue(ask("b").with_input("input")).await?;
    let ran = known(&fixture, &engine, ask("b")).await?;
    ensure!(!ran.replayed, "it waited, and an ask got {ran:?}");
    let now = fixture.trial.find(&id("b")).await?.state;
    ensure!(now == State::Done, "committed, and it is {now}");
    fixture.count_is("b", 1).await?;

    // With an input of its own, which the receipt has to keep until it is done.
    let ran = known(&fixture, &engine, ask("c").with_input("input")).await?;
    ensure!(!ran.replayed, "it is new, and got {ran:?}");
    fixture.count_is("c", 1).await?;

    let other = Ask::new(id("a"), onceward::Fingerprint::of(b"other"), policy.clone());
    let work = async |_: Lease, _: Tx<B>| Ok(());
    let answer =
        engine.transact_with_outcome(fixture.transactions(), other, Outcome::succeeded("x"), work).await?;
    ensure!(matches!(answer, Answer::Refused(_)), "the same key for something else got {answer:?}");
    Ok(())
}

/// A receipt is kept for as long as it says, from the end of its work.
pub(super) async fn long_work_does_not_shorten_the_retention<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    // A 64th of it is less than the work takes.
    let retention = Duration::from_secs(8);
    let outcome = Outcome::succeeded("a").with_retention(onceward::Retention::For(retention));
    let work = async |_: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "a").await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    };
    let engine = fixture.engine()?;
    let answer = engine.transact_with_outcome(fixture.transactions(), ask("a"), outcome, work).await;
    let told = std::time::Instant::now();
    let done = ran(answer)?;
    ensure!(done.expires_in == Some(retention), "kept for {retention:?}, and was told {done:?}");
    let Due::In(left) = fixture.trial.find(&id("a")).await?.due else {
        return Err(Wrong("it never falls due".into()));
    };
    let since = told.elapsed();
    ensure!(
        left + since + Duration::from_secs(1) >= retention,
        "{left:?} are left {since:?} after the answer"
    );
    fixture.count_is("a", 1).await
}

/// As [`TransactionFixture::transact`], where the outcome is known beforehand.
async fn known<B: Harness>(
    fixture: &TransactionFixture<B>,
    engine: &onceward::Onceward,
    ask: Ask,
) -> Checked<onceward::Completed> {
    let key = ask.id().key().to_owned();
    let work = async |_: Lease, mut tx: Tx<B>| fixture.harness.write(&mut tx, &key).await;
    let outcome = Outcome::succeeded("written");
    ran(engine.transact_with_outcome(fixture.transactions(), ask, outcome, work).await)
}

/// Commits what must be possible.
async fn commit<B: Harness>(
    fixture: &TransactionFixture<B>,
    tx: Tx<B>,
    id: &Id,
    written: Version,
) -> Checked {
    let committed = fixture.transactions().commit_written(tx, id, written).await;
    committed.map_err(|fault| Wrong(format!("{id:?}: did not commit: {}", said(&fault))))
}

/// A commit that must not happen, and must say so.
async fn refused<B: Harness>(
    fixture: &TransactionFixture<B>,
    tx: Tx<B>,
    id: &Id,
    written: Version,
) -> Checked {
    match fixture.transactions().commit_written(tx, id, written).await {
        Err(Fault::Failed(error))
            if error.applied() == Applied::No && error.kind() == onceward::ErrorKind::Conflict =>
        {
            Ok(())
        }
        Err(fault) => Err(Wrong(format!("a commit without its receipt got {}", said(&fault)))),
        Ok(()) => Err(Wrong("a transaction was committed without its receipt".into())),
    }
}
