//! Runs the benchmarks that need no other program, at the smallest size.

use onceward_bench::catalogue::Benchmark;
use onceward_bench::report::{Ending, Findings};
use onceward_bench::scale::Scale;

fn run(name: &str) -> Findings {
    match Benchmark::named(name).unwrap().run(&Scale::tiny()).ending {
        Ending::Measured(findings) => findings,
        Ending::Missing(why) | Ending::Failed(why) => panic!("{name}: {why}"),
    }
}

#[test]
fn the_embedded_store_is_compared_with_fjall_and_sqlite() {
    let findings = run("embedded");
    assert_eq!(findings.rows.len(), 2);
    for row in findings.rows {
        assert_eq!((row.ours.rounds.len(), row.other.unwrap().rounds.len()), (3, 3));
    }
}

#[test]
fn a_store_grows_and_is_swept() {
    let findings = run("growth");
    assert_eq!(findings.growths.len(), 4);
    assert!(findings.growths.iter().flat_map(|growth| &growth.curves).all(|(_, points)| points.len() == 2));
    let swept = run("sweep").rows.remove(1);
    assert!(swept.ours.median() > 0.0, "something was swept");
}

#[test]
fn messages_are_compared_where_postgresql_is_installed() {
    match Benchmark::named("messages").unwrap().run(&Scale::tiny()).ending {
        Ending::Measured(findings) => assert_eq!(findings.rows.len(), 14),
        Ending::Missing(why) => assert!(why.contains("PostgreSQL"), "{why}"),
        Ending::Failed(why) => panic!("{why}"),
    }
}

#[test]
fn a_relay_is_measured_to_nats_and_beside_an_open_transaction() {
    for (name, rows, needs) in [("messages-nats", 2, "nats-server"), ("messages-dead-rows", 3, "PostgreSQL")]
    {
        match Benchmark::named(name).unwrap().run(&Scale::tiny()).ending {
            Ending::Measured(findings) => assert_eq!(findings.rows.len(), rows, "{name}"),
            Ending::Missing(why) => assert!(why.contains(needs) || why.contains("PostgreSQL"), "{why}"),
            Ending::Failed(why) => panic!("{name}: {why}"),
        }
    }
}

#[test]
fn copies_reach_the_store_no_more_often_than_their_goal_says() {
    assert_eq!(run("duplicates").rows[0].met(), Some(true));
}

#[test]
fn what_is_not_there_is_missed_and_not_passed_over() {
    // Under `cargo test` no probe is built beside this binary.
    for name in ["owner-death", "messages-latency"] {
        let ending = Benchmark::named(name).unwrap().run(&Scale::tiny()).ending;
        assert!(matches!(ending, Ending::Missing(why) if why.contains("probe")), "{name}");
    }
}
