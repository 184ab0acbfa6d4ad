//! Compares the Redis store with a hand-written `SET NX` and `SET`, on one server at a time, at the same durability.
//!
//! `redis-benchmark` repeats one command and cannot run a pair, so each of the two is measured alone and the rate of pairs
//! is that of one after the other: 1 / (1 / a + 1 / b).

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use onceward::Onceward;
use onceward_stores::RedisStore;
use onceward_stores::redis::Options;

use super::postgres::claims;
use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Side, Unit};
use crate::scale::Scale;
use crate::servers::Redis;
use crate::turns::{Turn, Turns};

const CALLERS: usize = 512;
/// Commands that tell how many fit into a turn.
const TRIAL: usize = 2_000;
/// As long as the answer of the engine's claims.
const ANSWER: &str = "{\"id\":81,\"status\":\"charged\"}";
/// Different keys; more than this it does not count to.
const KEYS: &str = "1000000000";
const KEY: &str = "order-__rand_int__";
/// How long a claim lasts, and how long an outcome is kept, in seconds.
const LEASE: &str = "30";
const RETENTION: &str = "86400";

/// Measures claims by many callers on a server that syncs every write, and on one that keeps nothing.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let synced = compare(scale, &["--appendonly", "yes", "--appendfsync", "always"])?;
    let bare = compare(scale, &["--appendonly", "no"])?;
    let row = |what, [engine, by_hand]: &[Side; 2], least| {
        Row::ratio(what, Unit::PerSecond, engine, by_hand).goal(Goal::AtLeast(least))
    };
    let rows = vec![
        row("claim + complete, 512 callers / SET NX + SET by 64, appendfsync always", &synced, 1.5),
        row("the same without a log", &bare, 0.8),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

fn compare(scale: &Scale, options: &[&str]) -> Result<[Side; 2], Missing> {
    let server = Redis::start_with(options);
    let server = server.ok_or_else(|| Missing("Redis is not installed (package redis-server)".to_owned()))?;
    let runtime = runtime();
    let onceward = runtime.block_on(async {
        let store = RedisStore::open(&server.url(), Options::default()).await.unwrap();
        Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap()
    });
    Ok(Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
        ("engine", &mut |_| runtime.block_on(claims(&onceward, CALLERS, scale.round))),
        ("redis-benchmark", &mut |_| Turn::from(pairs(server.port(), scale.round))),
    ]))
}

/// Pairs of a claim and a completion a second, by 64 clients.
fn pairs(port: u16, length: Duration) -> f64 {
    let claim = rate(port, length / 2, &["SET", KEY, "claimed", "NX", "EX", LEASE]);
    let completion = rate(port, length / 2, &["SET", KEY, ANSWER, "EX", RETENTION]);
    1.0 / (1.0 / claim + 1.0 / completion)
}

/// How often a second a command is done, for about this long.
fn rate(port: u16, length: Duration, command: &[&str]) -> f64 {
    let per_second = measured(port, TRIAL, command);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of commands")]
    let count = (per_second * length.as_secs_f64()) as usize;
    measured(port, count.max(TRIAL), command)
}

fn measured(port: u16, count: usize, command: &[&str]) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-c", "64", "-n", &count.to_string(), "-r", KEYS, "--csv"])
        .args(command)
        .output()
        .expect("redis-benchmark comes with redis-server");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "test","rps",…, then "SET …","12345.67",…
    let rate = text.lines().last().and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
    rate.unwrap_or_else(|| panic!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
