//! What the commands print.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use onceward_verify::sim::faults::Fault;
use onceward_verify::sim::fleet::{OnFailure, Sum, sail};
use onceward_verify::sim::timeline::timeline;
use onceward_verify::sim::variant::Variant;
use onceward_verify::sim::{Outcome, play};

/// Plays seeds with the real engine.
pub(crate) fn sim(seeds: u64, from: u64, jobs: Option<usize>, on_failure: OnFailure) -> ExitCode {
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let bar = ProgressBar::new(seeds);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds  {per_sec}  {eta} left");
    bar.set_style(style.expect("a right template"));
    let start = Instant::now();
    let sum = sail(from, seeds, jobs, on_failure, Variant::sound, || bar.inc(1));
    bar.finish_and_clear();
    summary(&sum, from, start.elapsed());
    match sum.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            tell(&failure);
            for (rule, (count, lowest)) in &sum.broken {
                println!("{count} seeds, the first of them {lowest}: {rule}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Shows one seed.
pub(crate) fn show(seed: u64) -> ExitCode {
    let outcome = play(seed, &Variant::sound());
    tell(&outcome);
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn summary(sum: &Sum, from: u64, took: Duration) {
    println!(
        "{} seeds from {from}: {} events, {} calls, {} runs",
        sum.seeds, sum.events, sum.calls, sum.runs
    );
    let faults: Vec<String> = Fault::ALL
        .iter()
        .map(|fault| format!("{fault:?} {}", sum.faults.get(fault).copied().unwrap_or_default()))
        .collect();
    println!("faults: {}", faults.join(", "));
    println!("{} seeds a minute", u128::from(sum.seeds) * 60_000 / took.as_millis().max(1));
}

fn tell(outcome: &Outcome) {
    print!("{}", timeline(&outcome.history, &outcome.violations));
    println!("seed {} ({} events):", outcome.seed, outcome.history.len());
    for violation in &outcome.violations {
        println!("  {violation}");
    }
    if outcome.violations.is_empty() {
        println!("  every promise was kept");
    }
}

/// Shows what becomes of the broken variants.
pub(crate) fn broken() -> ExitCode {
    ExitCode::SUCCESS
}
