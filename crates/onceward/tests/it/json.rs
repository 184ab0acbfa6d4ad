//! Outcomes and steps as JSON.

use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::{ErrorKind, Outcome, Policy, Refusal, Stopped};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, ask};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Charge {
    account: String,
    amount: u32,
}

fn charge() -> Charge {
    Charge { account: "a".into(), amount: 12 }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_read_as_it_was_written() {
    let onceward = Cluster::new().process();
    for replayed in [false, true] {
        let work = async |_| Ok(Outcome::json(&charge())?);
        let completed = onceward.run(ask("k", &Policy::http()), work).await.unwrap().into_result().unwrap();
        assert_eq!((completed.json::<Charge>().unwrap(), completed.replayed), (charge(), replayed));
        let error = completed.json::<u64>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("an outcome is not the JSON of this type: "), "{error}");
    }
}

#[test]
fn what_is_no_json_is_an_error() {
    let by_pairs = std::collections::BTreeMap::from([((1, 2), 3)]);
    let error = Outcome::json(&by_pairs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(Outcome::succeeded("").read_json::<u64>().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_typed_step_runs_once_and_gives_its_value_to_every_run() {
    let onceward = Cluster::new().process();
    let steps = AtomicUsize::new(0);
    for run in 0..2 {
        let work = async |lease: onceward::Lease| {
            let made: Charge = lease
                .step_json("charge", async |_| {
                    steps.fetch_add(1, Ordering::SeqCst);
                    Ok(charge())
                })
                .await?;
            assert_eq!(made, charge());
            match run {
                0 => Err(Stopped::before_effect("not this time")),
                _ => Ok(Outcome::succeeded("both are done")),
            }
        };
        assert_eq!(onceward.run(ask("k", &Policy::http()), work).await.is_ok(), run == 1);
    }
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

/// A recorded value of another type stops the work, and so does a step that is refused: neither is run again.
#[tokio::test(start_paused = true)]
async fn a_step_that_gives_no_value_stops_the_work() {
    let onceward = Cluster::new().process();
    let work = async |lease: onceward::Lease| {
        lease.step_json("charge", async |_| Ok(charge())).await?;
        let other = lease.step_json::<u64, _, _>("charge", async |_| panic!("it is done")).await.unwrap_err();
        let unknown: Result<u64, _> =
            lease.step_json("unknown", async |_| Err(Stopped::unknown("who knows"))).await;
        assert!(unknown.is_err());
        let held = lease.step_json::<u64, _, _>("unknown", async |_| panic!("it is held")).await.unwrap_err();
        let refusal = held.cause().and_then(|cause| cause.downcast_ref::<Refusal>());
        assert_eq!(refusal, Some(&Refusal::OutcomeUnknown));
        Ok(Outcome::succeeded(other.to_string()))
    };
    let completed = onceward.run(ask("k", &Policy::http()), work).await.unwrap().into_result().unwrap();
    assert!(completed.outcome.body().starts_with(b"an outcome is not the JSON of this type"));
}
