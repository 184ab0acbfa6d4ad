//! Counts the allocations of one call and prints one `name count` per line, for `compare/allocations.rs`. It is a
//! separate binary because counting slows every allocation down.

#![expect(clippy::cast_precision_loss, reason = "a benchmark shows a few digits")]

use allocation_counter::measure;
use onceward_bench::compare::engine::{ask, engine, under_lease, work};
use onceward_bench::compare::layer::{Handler, guarded, request, send};

const CALLS: usize = 1_000;

fn main() {
    // One thread, so that everything a call causes is counted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let onceward = runtime.block_on(async { engine() });
    let through_engine = |key: fn(usize) -> usize| {
        let info = measure(|| {
            runtime.block_on(async {
                for at in 0..CALLS {
                    onceward.run(ask(0, key(at)), under_lease).await.unwrap();
                }
            });
        });
        info.count_total as f64 / CALLS as f64
    };
    let mut service = runtime.block_on(async { guarded() });
    let mut through_layer = |key: fn(usize) -> Option<String>| {
        // Made beforehand: keys are the client's.
        let requests: Vec<_> = (0..CALLS).map(|at| request(key(at).as_deref())).collect();
        let info = measure(|| {
            runtime.block_on(async {
                for request in requests {
                    send(&mut service, request).await;
                }
            });
        });
        info.count_total as f64 / CALLS as f64
    };
    // The first thousand fill tables whose growth is not the price of a call.
    through_engine(|at| at);
    through_layer(|at| Some(format!("k{at}")));
    println!("bare-closure {}", measure(|| drop(runtime.block_on(work()))).count_total);
    println!("engine-first {}", through_engine(|at| CALLS + at));
    println!("engine-replay {}", through_engine(|_| 0));
    let bare = request(None);
    println!("bare-handler {}", measure(|| runtime.block_on(send(&mut Handler, bare))).count_total);
    println!("layer-first {}", through_layer(|at| Some(format!("k{}", CALLS + at))));
    println!("layer-replay {}", through_layer(|_| Some("k0".to_owned())));
    println!("layer-no-key {}", through_layer(|_| None));
}
