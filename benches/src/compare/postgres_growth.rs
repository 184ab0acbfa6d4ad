//! Measures how the PostgreSQL store's cost grows with its table. One database grows through all sizes; at the
//! end it takes turns with a second one that is brought back to the smallest size before each turn.

use std::time::Duration;

use onceward::Onceward;

use super::growth::{Grown, ROUND_MAX, cost};
use super::postgres::{claims, open, start};
use crate::load::runtime;
use crate::process::{Missing, family_megabytes};
use crate::report::{Findings, Unit, many};
use crate::scale::Scale;
use crate::servers::Postgres;
use crate::turns::{Turns, progress};

const CALLERS: usize = 512;

/// Measures throughput, latency, the server's memory and disk at each size.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let server = start()?;
    let runtime = runtime();
    let engine = |name: &str| {
        let onceward = runtime.block_on(open(&server.database(name)));
        runtime.block_on(claims(&onceward, 1, Duration::ZERO));
        server.sql(name, "CREATE TABLE sample AS SELECT * FROM onceward_receipts LIMIT 1");
        onceward
    };
    let measure =
        |onceward: &Onceward| runtime.block_on(claims(onceward, CALLERS, scale.round.min(ROUND_MAX)));
    let growing = engine("growing");
    let mut grown = Grown::new("memory of the server");
    let mut have = 0;
    for &size in scale.sizes {
        progress(&format!("filling up to {} receipts", many(size)));
        fill(&server, "growing", have, size);
        have = size;
        let bytes: f64 =
            server.sql("growing", "SELECT pg_total_relation_size('onceward_receipts')").parse().unwrap();
        let turns = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up();
        let [rate] = turns.take([("claims", &mut |_| measure(&growing))]);
        grown.add(size, &rate, server_megabytes(&server), bytes / size as f64);
    }

    let (small, large) = (scale.sizes[0], have);
    let fresh = engine("fresh");
    let [large_rate, small_rate] = Turns::new(scale.rounds, Unit::PerSecond).take([
        ("large", &mut |_| measure(&growing)),
        ("small", &mut |_| {
            server.sql("fresh", "TRUNCATE onceward_receipts");
            fill(&server, "fresh", 0, small);
            measure(&fresh)
        }),
    ]);
    let mut rows = vec![cost(&large_rate, &small_rate, large, small)];
    rows.extend(grown.rows(large));
    Ok(Findings { rows, growths: grown.curves("PostgreSQL") })
}

/// Copies of a row that the store has written, under other keys and numbers; in their order, because loading is not
/// what is measured.
fn fill(server: &Postgres, database: &str, from: u64, to: u64) {
    let rows = format!(
        "INSERT INTO onceward_receipts (id_high, id_middle, id_low, version, open_state, due, created, updated, scope,
             operation, key, state, receipt)
         SELECT ('x' || left(md5(n::text), 16))::bit(64)::bigint, ('x' || right(md5(n::text), 16))::bit(64)::bigint, n,
             version, open_state, due, created, updated, scope, operation, 'old-' || md5(n::text), state, receipt
         FROM sample, generate_series({}, {to}) n ORDER BY 1",
        from + 1
    );
    server.sql(database, &rows);
    server.sql(database, "VACUUM ANALYZE onceward_receipts");
    server.sql(database, "CHECKPOINT");
}

/// The memory of the server and all its connections, if this user may look.
fn server_megabytes(server: &Postgres) -> Option<f64> {
    let file = server.sql("postgres", "SELECT pg_read_file('postmaster.pid')");
    family_megabytes(file.lines().next()?.trim().parse().ok()?)
}
