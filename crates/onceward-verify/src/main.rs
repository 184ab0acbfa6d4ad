//! `onceward-verify`: plays seeds of the simulator, and shows that broken variants are caught.

mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onceward_verify::sim::fleet::OnFailure;

#[derive(Parser)]
#[command(about = "Plays simulated worlds by seed and judges what happened in them.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play seeds with the real engine; the first that breaks a promise is shown in full
    Sim {
        /// How many seeds
        #[arg(long, default_value_t = 2000)]
        seeds: u64,
        /// The first of them
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Threads; one per core if not given
        #[arg(long)]
        jobs: Option<usize>,
        /// Play all of them and count which promises are broken, instead of stopping at the first
        #[arg(long)]
        count: bool,
    },
    /// Show one seed's timeline
    Show {
        /// Which seed
        seed: u64,
    },
    /// Show that every broken variant is caught, by what, and how soon
    Broken,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Sim { seeds, from, jobs, count } => {
            let on_failure = if count { OnFailure::Count } else { OnFailure::Stop };
            report::sim(seeds, from, jobs, on_failure)
        }
        Command::Show { seed } => report::show(seed),
        Command::Broken => report::broken(),
    }
}
