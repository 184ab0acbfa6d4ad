//! Benchmarks of the engine and its stores. Each comparison runs its two sides in turn, several
//! rounds, in one process; what is printed are medians and ratios of medians. See README.md here.

use clap::{Parser, Subcommand};
use onceward_bench::{client, duplicates, embedded, engine, growth, layer, postgres};

/// The same allocator as the binary `onceward`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "onceward-bench", about = "Ratios and costs, measured side by side in one run")]
struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// The engine over the memory store: nanoseconds of a first run and of a replay
    Engine {
        /// Calls in one round
        #[arg(long, default_value_t = ENGINE_CALLS)]
        calls: usize,
    },
    /// The HTTP layer in process: nanoseconds over the bare handler
    Layer {
        /// Calls in one round
        #[arg(long, default_value_t = LAYER_CALLS)]
        calls: usize,
    },
    /// The client over bare reqwest, with and without a journal
    Client,
    /// The embedded store through the engine, next to a bare fjall loop
    Embedded,
    /// The PostgreSQL store and transactions, next to the same by hand
    Postgres,
    /// The PostgreSQL store at two sizes
    PostgresGrowth {
        /// The smaller size, in thousand receipts
        #[arg(long, default_value_t = 100)]
        small: usize,
        /// The larger size, in thousand receipts
        #[arg(long, default_value_t = 10_000)]
        large: usize,
    },
    /// Store trips of 10,000 copies of one running intent
    Duplicates,
    /// The embedded store at two sizes: throughput, memory, disk
    Growth {
        /// The smaller size, in million receipts
        #[arg(long, default_value_t = 1)]
        small: u64,
        /// The larger size, in million receipts
        #[arg(long, default_value_t = 10)]
        large: u64,
    },
}

const ENGINE_CALLS: usize = 50_000;
const LAYER_CALLS: usize = 20_000;

fn main() {
    match Args::parse().what {
        Some(What::Engine { calls }) => engine::run(calls),
        Some(What::Layer { calls }) => layer::run(calls),
        Some(What::Client) => client::run(),
        Some(What::Embedded) => embedded::run(),
        Some(What::Postgres) => postgres::run(),
        Some(What::PostgresGrowth { small, large }) => postgres::growth(small, large),
        Some(What::Duplicates) => duplicates::run(),
        Some(What::Growth { small, large }) => growth::run(small, large),
        None => {
            engine::run(ENGINE_CALLS);
            layer::run(LAYER_CALLS);
            client::run();
            duplicates::run();
            embedded::run();
            postgres::run();
            growth::run(1, 10);
        }
    }
}
