//! The commands of the zoo: `zoo` checks every service and prints a table, `serve` serves one service.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use onceward_verify::zoo::cage;
use onceward_verify::zoo::table::{self, Animal};
use onceward_verify::zoo::tour;

use crate::report::bar;

/// Visits all of them, or one, with each of these seeds.
pub(crate) fn tour(seeds: Range<u64>, only: Option<&str>, at_a_time: u16) -> ExitCode {
    let animals: Vec<&Animal> =
        table::all().iter().filter(|animal| only.is_none_or(|name| name == animal.name)).collect();
    if animals.is_empty() {
        return unknown(only.unwrap_or_default());
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&error),
    };
    let count = seeds.end - seeds.start;
    let bar = bar(animals.len() as u64 * count, "{bar:40} {pos}/{len} visits, {msg}  {eta} left");
    let (start, mut right, mut wrong) = (Instant::now(), HashMap::new(), Vec::new());
    bar.set_message("all right");
    let visits = tour::tour(&animals, seeds, at_a_time, &program, |animal, visit| {
        if visit.is_right() {
            *right.entry(animal.name).or_insert(0) += 1;
        } else {
            wrong.push((animal.name, visit));
            bar.set_message(format!("{} wrong", wrong.len()));
        }
        bar.inc(1);
    });
    runtime().block_on(visits);
    bar.finish_and_clear();
    print_table(&animals, &right, count);
    for (name, visit) in &wrong {
        println!("\n{name}, {}", visit.story());
    }
    let visits = animals.len() as u64 * count;
    println!(
        "\n{} of {visits} visits were right, in {:.0} s",
        visits - wrong.len() as u64,
        start.elapsed().as_secs_f64()
    );
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_table(animals: &[&Animal], right: &HashMap<&str, u64>, seeds: u64) {
    println!(
        "{:<26} {:<62} {:<24} right",
        "service", "what is wrong, or how it is right", "must be caught by"
    );
    for Animal { name, what, caught_by, .. } in animals {
        let right = right.get(name).copied().unwrap_or_default();
        println!("{name:<26} {what:<62} {:<24} {right} of {seeds}", caught_by.unwrap_or("-"));
    }
}

/// Serves one until the process is killed.
pub(crate) fn serve(name: &str, port: u16, folder: &Path) -> ExitCode {
    let Some(animal) = table::named(name) else { return unknown(name) };
    match runtime().block_on(cage::serve(animal, port, folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be started")
}

fn unknown(name: &str) -> ExitCode {
    eprintln!("there is no {name:?} in the zoo; these there are:");
    for animal in table::all() {
        eprintln!("  {:26} {}", animal.name, animal.what);
    }
    ExitCode::from(2)
}

fn failed(error: &std::io::Error) -> ExitCode {
    eprintln!("onceward-verify: {error}");
    ExitCode::from(2)
}
