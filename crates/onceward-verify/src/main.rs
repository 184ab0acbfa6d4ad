//! The command `onceward-verify`: runs seeds of the simulator, and shows that broken variants and services are caught.

mod report;
mod zoo_command;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onceward_verify::broken::search::SEEDS_MAX;
use onceward_verify::sim::seeds::OnFailure;
use onceward_verify::zoo::check_all::AT_A_TIME;

/// Runs simulations by seed and checks their histories.
///
/// A simulation has several processes with callers, workers, transactions, sweeps and operators over one store, and
/// faults: crashes, pauses, clock jumps, outages, lost and late replies, lost writes and commits, restarts. All of
/// it follows from the seed, so the same seed always gives the same history. A checker that
/// knows the protocol but not the engine reads that history.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play seeds with the real engine; the first that breaks a promise is shown in full
    ///
    /// Exits with 1 if a promise was broken, after printing the seed, its timeline and what was wrong.
    Sim {
        /// How many seeds
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first of them
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Threads; one per core if not given
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
        jobs: Option<u16>,
        /// Play all of them and count which promises are broken, instead of stopping at the first
        #[arg(long)]
        count: bool,
    },
    /// Show one seed's timeline and the broken promises in it
    ///
    /// Each line is one event: its number, the store's time, the process (p2.1 is the second life of process
    /// 2), and what happened. Exits with 1 if a promise was broken.
    Show {
        /// Which seed
        seed: u64,
        /// With a broken variant in the engine's place; `broken` lists them
        #[arg(long, value_name = "NAME")]
        variant: Option<String>,
    },
    /// Show that every broken variant is caught, by what, and how soon
    ///
    /// Each variant has one mistake that people really make. Exits with 1 if one survives, or if the real
    /// engine does not pass the very seeds that the variants were caught in.
    Broken {
        /// Also say where each mistake was seen
        #[arg(long)]
        seen: bool,
        /// The number of seeds within which a variant must be caught
        #[arg(long, default_value_t = SEEDS_MAX, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
    },
    /// Show that the endpoint verifier catches every broken service of its zoo, and passes every correct one
    ///
    /// Exits with 1 if one survives, or if a correct one is reported.
    Zoo {
        /// How many seeds for each
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// The first of them
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Only this service
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// How many are checked at a time
        #[arg(long, value_name = "N", default_value_t = AT_A_TIME, value_parser = clap::value_parser!(u16).range(1..=256))]
        at_a_time: u16,
    },
    /// Send what the environment asks for as one client of the zoo does it, to try `onceward verify --client-cmd` by hand
    Call {
        /// Which one
        name: String,
        /// With its files in this folder
        #[arg(long)]
        folder: PathBuf,
    },
    /// Serve one service of the zoo, to try it by hand; `zoo` lists them
    Serve {
        /// Which one
        name: String,
        /// At this port of the loopback address
        #[arg(long)]
        port: u16,
        /// With its files in this folder
        #[arg(long)]
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Sim { seeds, from, jobs, count } => {
            let on_failure = if count { OnFailure::Count } else { OnFailure::Stop };
            report::sim(seeds, from, jobs.map(usize::from), on_failure)
        }
        Command::Show { seed, variant } => report::show(seed, variant.as_deref()),
        Command::Broken { seen, seeds } => report::broken(seen, seeds),
        Command::Zoo { seeds, from, only, at_a_time } => {
            zoo_command::check_all(from..from.saturating_add(seeds), only.as_deref(), at_a_time)
        }
        Command::Call { name, folder } => zoo_command::call(&name, &folder),
        Command::Serve { name, port, folder } => zoo_command::serve(&name, port, &folder),
    }
}
