//! Benchmarks of the engine and its stores. Each comparison runs its two sides in turn, several
//! rounds, in one process; what is printed are medians and ratios of medians. See README.md here.

use clap::{Parser, Subcommand};
use onceward_bench::engine;

#[derive(Parser)]
#[command(name = "onceward-bench", about = "Ratios and costs, measured side by side in one run")]
struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// The engine over the memory store: nanoseconds and allocations of a first run and of a replay
    Engine {
        /// Calls in one round
        #[arg(long, default_value_t = 50_000)]
        calls: usize,
    },
}

fn main() {
    match Args::parse().what {
        None => engine::run(50_000),
        Some(What::Engine { calls }) => engine::run(calls),
    }
}
