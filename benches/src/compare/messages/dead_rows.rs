//! A relay under steady load while a transaction stays open for minutes: no row that it removes can be vacuumed away. In the
//! last quarter of that time it is measured how fast it empties a full outbox, and compared with the same before.

use std::time::{Duration, Instant};

use onceward_flows::FlowTables;

use super::by_hand;
use super::running::{LOAD, RunningRelay};
use crate::compare::postgres;
use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Side, Unit};
use crate::scale::Scale;
use crate::servers::Postgres;
use crate::turns::{Turns, progress};

/// Measures the relay before, and in the last quarter.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let server = postgres::start()?;
    let (runtime, url) = (runtime(), server.database("bench"));
    let tables = runtime.block_on(FlowTables::open(&url)).unwrap();
    server.sql("bench", by_hand::TABLES);
    let (count, quarter) = (scale.calls * 2, scale.memory / 4);
    let mut relay = RunningRelay::start(&runtime, &tables, &url);
    let measure =
        |name: &str, before: &mut dyn FnMut(&mut RunningRelay<'_>), relay: &mut RunningRelay<'_>| {
            let [side] = Turns::new(scale.rounds, Unit::PerSecond).take([(name, &mut |_| {
                before(relay);
                relay.empty(count).into()
            })]);
            side
        };
    let pause = quarter / u32::try_from(scale.rounds).expect("there are few rounds");
    // Once to warm up: connections, the pages of the table.
    measure("warm-up", &mut |_| (), &mut relay);
    let vacuum = || drop(server.sql("bench", "VACUUM ANALYZE onceward_outbox"));
    let without = measure("without", &mut |_| vacuum(), &mut relay);

    let open = runtime.block_on(by_hand::connect(&url));
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM business";
    runtime.block_on(open.batch_execute(snapshot)).unwrap();
    let begun = Instant::now();
    for at in 1..=3 {
        relay.steady(quarter);
        let (rows, megabytes) = (dead_rows(&server), megabytes(&server));
        progress(&format!("quarter {at}: {rows} dead rows, {megabytes:.0} MB"));
    }
    let beside = measure("beside an open transaction", &mut |relay| relay.steady(pause), &mut relay);
    relay.stop();
    let seconds = begun.elapsed().as_secs();
    let (dead, size) = (dead_rows(&server), megabytes(&server));
    runtime.block_on(open.batch_execute("COMMIT")).unwrap();

    let what = format!(
        "relay in the last quarter of {seconds} s beside an open transaction, {LOAD}/s all the time / before"
    );
    let alone = |what: &str, unit, value| Row::alone(what, unit, &Side::new(what, vec![value]));
    let rows = vec![
        Row::ratio(what, Unit::PerSecond, &beside, &without).goal(Goal::AtLeast(0.8)),
        alone("dead rows of the outbox at the end (n_dead_tup)", Unit::Rows, dead),
        alone("the outbox on disk at the end, with its index", Unit::Megabytes, size),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

fn dead_rows(server: &Postgres) -> f64 {
    // What a session has counted is told to others only now and then.
    std::thread::sleep(Duration::from_secs(2));
    let rows = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'onceward_outbox'";
    server.sql("bench", rows).parse().unwrap()
}

fn megabytes(server: &Postgres) -> f64 {
    let bytes: f64 = server.sql("bench", "SELECT pg_total_relation_size('onceward_outbox')").parse().unwrap();
    bytes / f64::from(1 << 20)
}
