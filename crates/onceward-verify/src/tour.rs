//! A tour of the zoo: every animal is looked at, and what was found is printed.

use std::path::Path;
use std::process::ExitCode;

use onceward_verify::zoo::cage;
use onceward_verify::zoo::table::{self, Animal};
use onceward_verify::zoo::visit::visit;

/// Visits all of them, or one, so many times each.
pub(crate) fn tour(seeds: u64, only: Option<&str>) -> ExitCode {
    let animals: Vec<&Animal> =
        table::all().iter().filter(|animal| only.is_none_or(|name| name == animal.name)).collect();
    if animals.is_empty() {
        return unknown(only.unwrap_or_default());
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&error),
    };
    let mut wrong = 0;
    println!("{:<26} {:<58} {:<24} result", "service", "what is wrong, or how it is right", "caught by");
    for animal in animals {
        let visits = runtime().block_on(async {
            let mut visits = Vec::new();
            for seed in 0..seeds {
                visits.push(visit(animal, &program, seed).await);
            }
            visits
        });
        let right = visits.iter().filter(|visit| visit.is_right()).count();
        println!(
            "{:<26} {:<58} {:<24} {right} of {seeds}",
            animal.name,
            animal.what,
            animal.caught_by.unwrap_or("-")
        );
        for visit in visits.iter().filter(|visit| !visit.is_right()) {
            wrong += 1;
            println!("{}", visit.story());
        }
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
