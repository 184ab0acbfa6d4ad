//! Allocations of one call, counted exactly. A binary of its own, because counting them slows every
//! one of them down.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use onceward_bench::engine::{ask, engine, under_lease, work};
use onceward_bench::layer::{Handler, guarded, request, send};
use onceward_bench::table::Table;

fn main() {
    // One thread, so that everything a call causes is counted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
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
    let mut service = runtime.block_on(async { guarded() });
    let mut layer = |from: usize, key: &dyn Fn(usize) -> Option<String>| {
        const CALLS: usize = 1_000;
        let info = allocation_counter::measure(|| {
            runtime.block_on(async {
                for at in from..from + CALLS {
                    send(&mut service, request(key(at).as_deref())).await;
                }
            });
        });
        info.count_total as f64 / CALLS as f64
    };
    let bare_answer = allocation_counter::measure(|| runtime.block_on(send(&mut Handler, request(None))))
        .count_total as f64;
    layer(0, &|at| Some(format!("k{at}")));
    // The key itself is made by the benchmark.
    let layer_first = layer(1_000, &|at| Some(format!("k{at}"))) - bare_answer - 1.0;
    let layer_keyless = layer(0, &|_| None) - bare_answer;
    let table = Table::start("allocations, engine over the memory store");
    table.row(
        "first run over the bare closure, its ask included",
        &format!("{first:.1}"),
        "<= 12",
        Some(first <= 12.0),
    );
    table.row(
        "HTTP layer, first run over the bare handler",
        &format!("{layer_first:.1}"),
        "<= 25",
        Some(layer_first <= 25.0),
    );
    table.row("HTTP layer, without a key over the bare handler", &format!("{layer_keyless:.1}"), "", None);
    table.row("replay, its ask included", &format!("{replay:.1}"), "", None);
}
