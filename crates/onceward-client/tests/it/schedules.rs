//! Seeded schedules of faults: with any faults of the server the effect of an intent happens once, every try carries
//! the same key and the same bytes, and the answer is that of the effect.

use std::sync::Arc;
use std::time::Duration;

use onceward_client::{BreakerConfig, BudgetConfig, Client, JitteredBackoff, RetryConfig};
use tokio::task::JoinSet;

use crate::server::{Came, Dice, Fault, Server, usual_or_long};

/// Maximum number of faults in a row; then the server answers.
const FAULTS_MAX: u64 = 8;
const TRY_AT_MOST: Duration = Duration::from_millis(150);
const AT_ONCE: usize = 64;

/// Many tries with short pauses: these tests are about safety, not about load.
pub fn patient() -> RetryConfig {
    RetryConfig::default()
        .with_tries_max(10_000)
        .with_try_at_most(TRY_AT_MOST)
        .with_call_at_most(Duration::from_secs(600))
        .with_backoff(JitteredBackoff::new(Duration::from_millis(1), Duration::from_millis(8)))
        // Short, because the server often asks for a second.
        .with_retry_after_max(Duration::from_millis(5))
        .with_budget(BudgetConfig::UNLIMITED)
        .with_breaker(BreakerConfig::OFF)
}

/// The fault of one try of the schedule `seed`.
pub fn fault(seed: u64, before: usize) -> Fault {
    let mut dice = Dice::new(seed);
    let faults = dice.below(FAULTS_MAX + 1);
    if before as u64 >= faults {
        return Fault::None;
    }
    let mut dice = Dice::new(seed ^ (before as u64 + 1).wrapping_mul(0xa076_1d64_78bd_642f));
    match dice.below(12) {
        0 | 1 => Fault::DropBeforeEffect,
        2 => Fault::DropAfterEffect,
        3 => Fault::DropMidAnswer,
        4 => Fault::Delay(TRY_AT_MOST * 2),
        5 => Fault::Delay(TRY_AT_MOST / 2),
        6 => Fault::InProgress,
        7 => Fault::Status([408, 425, 500, 502, 503, 504][usize::try_from(dice.below(6)).unwrap()]),
        8 => Fault::StatusAfterEffect(502),
        9 => Fault::Busy("1"),
        10 => Fault::Busy("Thu, 01 Jan 2099 00:00:00 GMT"),
        _ => Fault::Garbage,
    }
}

fn script(came: &Came) -> Fault {
    let seed: u64 = came.intent.trim_start_matches("seed-").parse().unwrap();
    fault(seed, came.before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_any_faults_the_effect_happens_once_and_the_answer_is_its_own() {
    let seeds = usual_or_long(2_000, 10_000);
    let server = Arc::new(Server::start_dropping(script, 7).await);
    let folder = tempfile::tempdir().unwrap();
    let journaled = crate::builder()
        .with_retry_config(patient())
        .with_journal(format!("embedded:{}", folder.path().join("journal").display()))
        .build()
        .unwrap();
    let plain = crate::builder().with_retry_config(patient()).build().unwrap();
    let mut running = JoinSet::new();
    let mut tries = 0;
    for seed in 0..seeds {
        // Every second one with a journal; the schedules of a pair are different ones.
        let client = if seed.is_multiple_of(2) { journaled.clone() } else { plain.clone() };
        let server = server.clone();
        running.spawn(async move { one(seed, &client, &server).await });
        if running.len() >= AT_ONCE {
            tries += running.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(joined) = running.join_next().await {
        tries += joined.unwrap();
    }
    println!("{seeds} schedules, {tries} tries");
    assert!(tries > seeds * 3, "the faults were there: {tries} tries");
    journaled.recorded().await;
    assert!(journaled.resume().await.unwrap().is_empty(), "nothing is left open");
}

/// One schedule; gives how many tries it took.
async fn one(seed: u64, client: &Client, server: &Server) -> u64 {
    let name = format!("seed-{seed}");
    let request = client.post(&server.url).json(&serde_json::json!({ "intent": name }));
    let request = if seed.is_multiple_of(2) { request.intent(&name) } else { request };
    let answer = request.send().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let intent = server.intent(&name);
    assert_eq!(intent.effects, 1, "seed {seed}: {intent:?}");
    assert_eq!(intent.keys.len(), 1, "seed {seed}: one key on every try: {intent:?}");
    assert_eq!(intent.bodies.len(), 1, "seed {seed}: the same bytes on every try: {intent:?}");
    assert_eq!((answer.status().as_u16(), &*answer.text()), (201, &*intent.answer), "seed {seed}");
    // Some were dropped before the server could read their number.
    assert!(intent.numbers.is_sorted_by(|one, next| one < next), "seed {seed}: {intent:?}");
    assert!(intent.numbers.last() <= Some(&answer.report().tries), "seed {seed}: {intent:?}");
    intent.numbers.len() as u64
}
