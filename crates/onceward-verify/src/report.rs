//! What the commands print: results on standard output, progress on standard error.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use onceward_verify::broken::search::{Catch, Catcher, search};
use onceward_verify::broken::table::{self, Broken};
use onceward_verify::sim::faults::Fault;
use onceward_verify::sim::seeds::{OnFailure, Totals, run_seeds};
use onceward_verify::sim::timeline::timeline;
use onceward_verify::sim::variant::Variant;
use onceward_verify::sim::{Outcome, play};

/// Plays seeds with the real engine.
pub(crate) fn sim(seeds: u64, from: u64, jobs: Option<usize>, on_failure: OnFailure) -> ExitCode {
    let bar = bar(seeds, "{bar:40} {pos}/{len} seeds  {per_sec}  {eta} left");
    let start = Instant::now();
    let jobs = jobs.unwrap_or_else(cores);
    let sum = run_seeds(from, seeds, jobs, on_failure, Variant::sound, || bar.inc(1));
    bar.finish_and_clear();
    if let Some(failure) = &sum.failure {
        tell(failure);
        println!();
    }
    summary(&sum, from, start.elapsed());
    match &sum.failure {
        None => {
            println!("every promise was kept");
            ExitCode::SUCCESS
        }
        Some(failure) => {
            for (rule, (count, lowest)) in &sum.broken {
                println!("BROKEN in {}, first in seed {lowest}: {rule}", count_of_seeds(*count));
            }
            println!(
                "see it again: cargo run --release -p onceward-verify --features cli -- show {}",
                failure.seed
            );
            ExitCode::FAILURE
        }
    }
}

/// Shows one seed.
pub(crate) fn show(seed: u64, variant: Option<&str>) -> ExitCode {
    let variant = match variant.map(|name| table::named(name).ok_or(name)) {
        None => Variant::sound(),
        Some(Ok(broken)) => broken.flaw.variant(),
        Some(Err(name)) => {
            eprintln!("there is no broken variant {name:?}; these there are:");
            table::all().for_each(|broken| eprintln!("  {:30} {}", broken.name, broken.wrong));
            return ExitCode::from(2);
        }
    };
    let outcome = play(seed, &variant);
    tell(&outcome);
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shows what becomes of the broken variants.
pub(crate) fn broken(seen: bool, seeds_max: u64) -> ExitCode {
    // A broken variant may make the engine panic. That counts as caught, and needs no words here.
    std::panic::set_hook(Box::new(|_| {}));
    let rows = table::all().count();
    let bar = bar(rows as u64 + 1, "{bar:40} {pos}/{len}  {msg}");
    let start = Instant::now();
    println!("{}", line(["variant", "what is wrong", "caught by", "rule or check", "after"]));
    println!("{}", "-".repeat(WIDTHS.iter().sum::<usize>() + 3 * (WIDTHS.len() - 1)));
    let (mut survivors, mut seeds) = (Vec::new(), 1);
    for broken in table::all() {
        bar.set_message(broken.name);
        let mut text = Vec::new();
        for (number, catcher) in broken.caught_by.iter().enumerate() {
            let catch = search(broken, *catcher, seeds_max, cores());
            seeds = seeds.max(catch.as_ref().and_then(|catch| catch.seeds).unwrap_or(1));
            if catch.is_none() {
                survivors.push((broken.name, *catcher));
            }
            text.push(found(broken, number, *catcher, catch.as_ref()));
        }
        if seen {
            text.push(format!("    seen: {}", broken.seen));
        }
        bar.suspend(|| println!("{}", text.join("\n")));
        bar.inc(1);
    }
    bar.set_message("the real engine, with the same seeds");
    let sound = run_seeds(0, seeds, cores(), OnFailure::Stop, Variant::sound, || {});
    bar.finish_and_clear();
    println!("\n{rows} variants in {:.1} s", start.elapsed().as_secs_f64());
    for (name, catcher) in &survivors {
        println!("SURVIVED: {name} (the {catcher} did not catch it)");
    }
    match &sound.failure {
        Some(failure) => println!("THE REAL ENGINE breaks a promise, too, in seed {}", failure.seed),
        None => println!("the real engine kept every promise with the same {seeds} seeds"),
    }
    if survivors.is_empty() && sound.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How wide the columns of the table of variants are; the last one is as wide as it needs to be.
const WIDTHS: [usize; 5] = [30, 76, 11, 65, 12];

fn line(cells: [&str; 5]) -> String {
    let cells: Vec<String> = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:width$}")).collect();
    cells.join(" | ").trim_end().to_owned()
}

fn found(broken: &Broken, number: usize, catcher: Catcher, catch: Option<&Catch>) -> String {
    let (name, wrong) = if number == 0 { (broken.name, broken.wrong) } else { ("", "") };
    let (by, after) = match catch {
        None => ("NOTHING: it survived", String::new()),
        Some(Catch { by, seeds: None, .. }) => (by.as_str(), "at once".to_owned()),
        Some(Catch { by, seeds: Some(seeds), .. }) => (by.as_str(), count_of_seeds(*seeds)),
    };
    line([name, wrong, &catcher.to_string(), by, &after])
}

fn count_of_seeds(seeds: u64) -> String {
    if seeds == 1 { "1 seed".to_owned() } else { format!("{seeds} seeds") }
}

fn summary(sum: &Totals, from: u64, took: Duration) {
    let per_minute = u128::from(sum.seeds) * 60_000 / took.as_millis().max(1);
    println!("seeds    {} from {from}, in {:.1} s ({per_minute} a minute)", sum.seeds, took.as_secs_f64());
    println!("events   {}", sum.events);
    println!("calls    {}", sum.calls);
    println!("runs     {}", sum.runs);
    println!("enqueued {}", sum.enqueued);
    println!("commits  {}", sum.commits);
    println!("dead     {}", sum.dead);
    println!("faults   {}", sum.faults.values().sum::<u64>());
    for fault in Fault::ALL {
        println!("  {:<15} {:>9}", fault.name(), sum.faults.get(&fault).copied().unwrap_or_default());
    }
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

pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    bar.set_style(ProgressStyle::with_template(template).expect("a right template"));
    bar
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
