//! Measures many simultaneous duplicates of one running request.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use onceward::{Ask, Fingerprint, Id, Onceward, Outcome, Policy};

use super::embedded::engine;
use crate::latency::Latency;
use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Side, Unit, many};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

/// Long enough for every copy to have asked.
const WORK: Duration = Duration::from_secs(1);

/// Counts trips to the store, and times the copies from the end of the work to their answers.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let onceward = runtime.block_on(engine(&folder.path().join("store")));
    let mut trips = Vec::new();
    let [answered] = Turns::new(scale.rounds, Unit::Milliseconds).take([("p99", &mut |round| {
        let before = store_trips(&onceward);
        let latency = runtime.block_on(storm(&onceward, round, scale.copies));
        trips.push(store_trips(&onceward) - before);
        Turn::with_latency(latency.at(0.99) / 1e3, Some(latency))
    })]);
    let copies = many(scale.copies);
    let rows = vec![
        Row::alone(format!("{copies} copies, store trips in all"), Unit::Trips, &Side::new("trips", trips))
            .goal(Goal::AtMost(2.0)),
        Row::alone("from the end of the work to the answer, p99 of copies", Unit::Milliseconds, &answered),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

fn store_trips(onceward: &Onceward) -> f64 {
    let counts = onceward.counts();
    (counts.store_batches + counts.store_loads) as f64
}

async fn storm(onceward: &Onceward, round: usize, count: u64) -> Latency {
    let policy = Arc::new(Policy::http());
    let ended = Arc::new(OnceLock::new());
    let mut copies = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (onceward, policy, ended) = (onceward.clone(), policy.clone(), ended.clone());
        copies.spawn(async move {
            let id = Id::new("tenant", "charge", &format!("hot-{round}")).unwrap();
            let work = async |_| {
                tokio::time::sleep(WORK).await;
                ended.set(Instant::now()).expect("it runs once");
                Ok(Outcome::succeeded("once"))
            };
            let answer = onceward.run(Ask::new(id, Fingerprint::of(b""), policy), work).await;
            (answer.unwrap().into_result().unwrap().replayed, Instant::now())
        });
    }
    let answers = copies.join_all().await;
    let replayed = answers.iter().filter(|(replayed, _)| *replayed).count();
    assert_eq!(replayed as u64, count - 1, "it ran more than once");
    let ended = *ended.get().expect("it has run");
    let samples = answers.iter().map(|(_, at)| at.duration_since(ended).as_secs_f32() * 1e6).collect();
    Latency::from_samples(samples).expect("there are copies")
}
