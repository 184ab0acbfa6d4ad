//! What a process that died leaves behind, and who continues with it.

use std::sync::Mutex;
use std::time::Duration;

use onceward::{Claimed, Clock, Ticket};
use onceward_stores::memory::{MemoryStore, MemoryTransactions, MemoryTx};

use super::*;

/// A clock that the test sets.
struct SetClock(Mutex<u64>);

impl Clock for SetClock {
    fn now_us(&self) -> u64 {
        *self.0.lock().unwrap()
    }
}

impl SetClock {
    fn forward(&self, time: Duration) {
        *self.0.lock().unwrap() += u64::try_from(time.as_micros()).unwrap();
    }
}

fn engine() -> (Onceward, MemoryTransactions, Arc<SetClock>) {
    let clock = Arc::new(SetClock(Mutex::new(1_000_000_000_000)));
    let store = MemoryStore::new_with_clock(clock.clone());
    let transactions = MemoryTransactions::new(&store);
    (Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap(), transactions, clock)
}

/// What a process has claimed that was killed before it could record an end.
async fn claim_and_die(onceward: &Onceward, ask: Ask) {
    let claimed = onceward.claim(ask).await.unwrap();
    let Claimed::Granted(ticket) = claimed else { panic!("{claimed:?}") };
    std::mem::forget::<Ticket>(ticket);
}

#[tokio::test]
async fn a_process_killed_while_it_records_a_version_blocks_nobody_for_long() {
    let (onceward, _, clock) = engine();
    let saga = Saga::builder("order").step("reserve", |_: Step| async { Ok(()) }).build().unwrap();
    let Definition { name, version, digest, .. } = &**saga.definition();
    let id = view::definition_id(name, *version).unwrap();
    let print = Fingerprint::new(0, *digest);
    claim_and_die(&onceward, Ask::new(id, print, definition::definition_policy())).await;
    // It may still be at it: that is no other definition.
    let error = saga.start(&onceward, "81", "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    clock.forward(Duration::from_secs(60));
    assert_eq!(saga.start(&onceward, "81", "").await.unwrap(), Enqueued::Accepted);
}

/// What a transaction wrote is rolled back before its end is recorded, so that another try is never one too many.
#[tokio::test]
async fn a_process_killed_while_it_records_the_end_of_a_transaction_leaves_no_unknown_outcome() {
    let (onceward, transactions, clock) = engine();
    let declined = |_: Step, _: MemoryTx| async { Err::<(), _>(StepStop::failed("declined")) };
    let saga = Saga::builder("order").step_in("charge", transactions, declined).build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let definition::PartKind::Step(step) = &saga.definition().parts[0].kind else { unreachable!() };
    let id = step::step_id(&saga.id("81").unwrap(), "charge", Direction::Action).unwrap();
    let ask = Ask::new(id, Fingerprint::of(b""), step.policy.clone()).with_input(Bytes::new());
    claim_and_die(&onceward, ask).await;
    clock.forward(Duration::from_secs(3_600));
    saga.worker(&onceward).unwrap().run_once().await.unwrap();
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    assert_eq!(view.ended, Some(Ended::Undone("charge: declined".into())), "{view:#?}");
}

/// The outcome of a step that somebody else has recorded: whether it has to be undone is for an operator, and they see
/// it.
#[tokio::test]
async fn an_outcome_that_cannot_be_read_is_listed_as_needing_a_person() {
    let (onceward, ..) = engine();
    let saga = Saga::builder("order").step("charge", |_: Step| async { Ok(()) }).build().unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    let id = step::step_id(&saga.id("81").unwrap(), "charge", Direction::Action).unwrap();
    let ask = Ask::new(id, Fingerprint::of(b""), definition::step_policy());
    onceward.run(ask, async |_| Ok(Outcome::succeeded("paid"))).await.unwrap();
    saga.worker(&onceward).unwrap().run_once().await.unwrap();
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    let SagaState::NeedsPerson(needs) = view.state else { panic!("{view:#?}") };
    assert_eq!((needs.step.as_deref(), needs.state), (Some("charge"), onceward::State::Done));
    assert!(needs.reason.contains("cannot be read"), "{needs:?}");
}
