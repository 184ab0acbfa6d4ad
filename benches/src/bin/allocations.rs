//! Allocations of one call, counted exactly. A binary of its own, because counting them slows every
//! one of them down.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use onceward_bench::engine::{ask, engine, under_lease, work};
use onceward_bench::table::Table;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let onceward = runtime.block_on(async { engine() });
    let per_call = |from: usize, calls: usize, key: &dyn Fn(usize) -> usize| {
        let info = allocation_counter::measure(|| {
            runtime.block_on(async {
                for at in from..from + calls {
                    onceward.run(ask(99, key(at)), under_lease).await.unwrap();
                }
            });
        });
        info.count_total as f64 / calls as f64
    };
    // The first thousand fill tables whose growth is not the price of a call.
    per_call(0, 1_000, &|at| at);
    let bare = allocation_counter::measure(|| drop(runtime.block_on(work()))).count_total as f64;
    let first = per_call(1_000, 1_000, &|at| at) - bare;
    let replay = per_call(0, 1_000, &|_| 500);
    let table = Table::start("allocations, engine over the memory store");
    table.row(
        "first run over the bare closure, its ask included",
        &format!("{first:.1}"),
        "<= 12",
        Some(first <= 12.0),
    );
    table.row("replay, its ask included", &format!("{replay:.1}"), "", None);
}
