//! Runs benchmarks by name and prints their results; `./bench` builds and calls this.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use onceward_bench::catalogue::{ALL, Benchmark, When};
use onceward_bench::report::{Ending, Report};
use onceward_bench::scale::Scale;

/// The same allocator as the binary `onceward`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks Onceward next to the alternatives, side by side in one run.
#[derive(Parser)]
#[command(name = "onceward-bench", after_help = names())]
struct Args {
    /// What to run; everything, if nothing is named
    #[arg(value_name = "NAME", value_parser = named)]
    names: Vec<&'static Benchmark>,
    /// All of it in less than five minutes (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All of it in less than thirty minutes: more and longer rounds, larger stores, more connections
    #[arg(long)]
    full: bool,
    /// Count a missed goal as an error
    #[arg(long)]
    strict: bool,
    /// How many minutes `gateway-memory` and `messages-dead-rows` measure
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Where report.json and report.html are written
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut scale = if args.full { Scale::full() } else { Scale::quick() };
    scale.memory = Duration::from_secs(60 * args.minutes);
    let chosen = if args.names.is_empty() {
        ALL.iter().filter(|benchmark| benchmark.when == When::Always).collect()
    } else {
        args.names
    };
    let start = Instant::now();
    let mut report = Report { scale: scale.name, machine: machine(), entries: Vec::new() };
    for (at, benchmark) in chosen.iter().enumerate() {
        let (name, about, seconds) = (benchmark.name, benchmark.about, start.elapsed().as_secs());
        eprintln!("[{}/{}, {seconds} s] {name}: {about}", at + 1, chosen.len());
        let entry = benchmark.run(&scale);
        if let Ending::Missing(why) | Ending::Failed(why) = &entry.ending {
            eprintln!("   !! {why}");
        }
        report.entries.push(entry);
    }
    println!("\n{}", report.table());
    let (missed, unmeasured) = (report.missed(), report.unmeasured());
    println!("{} run on {}, {} s", report.scale, report.machine, start.elapsed().as_secs());
    println!("goals missed: {missed}; not run: {unmeasured}");
    if let Err(error) = report.write(&args.output) {
        eprintln!("bench: cannot write to {}: {error}", args.output.display());
        return ExitCode::FAILURE;
    }
    println!("written: {0}/report.json, {0}/report.html", args.output.display());
    let content = unmeasured == 0 && (missed == 0 || !args.strict);
    if content { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn named(name: &str) -> Result<&'static Benchmark, String> {
    Benchmark::named(name).ok_or_else(|| format!("there is no such benchmark\n\n{}", names()))
}

fn names() -> String {
    let line = |benchmark: &Benchmark| {
        let only = if benchmark.when == When::Named { " (only when named)" } else { "" };
        format!("  {:<18} {}{only}", benchmark.name, benchmark.about)
    };
    format!("Names:\n{}", ALL.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// What this machine is, as far as it tells.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        processors.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.trim()));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?");
    format!("{cores} cores ({}), load {load} at the start", model.unwrap_or("unknown processor"))
}
