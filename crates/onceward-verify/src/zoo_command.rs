//! The commands of the zoo: `zoo` checks every service and prints a table, `serve` serves one service.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use onceward_verify::zoo::check_all;
use onceward_verify::zoo::clients;
use onceward_verify::zoo::start;
use onceward_verify::zoo::table::{self, ZooService};

use crate::report::bar;

/// Checks all of them, or one, with each of these seeds.
pub(crate) fn check_all(seeds: Range<u64>, only: Option<&str>, at_a_time: u16) -> ExitCode {
    let services: Vec<&ZooService> =
        table::all().iter().filter(|service| only.is_none_or(|name| name == service.name)).collect();
    if services.is_empty() {
        return unknown(only.unwrap_or_default());
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(&error),
    };
    let count = seeds.end - seeds.start;
    let bar = bar(services.len() as u64 * count, "{bar:40} {pos}/{len} checks, {msg}  {eta} left");
    let (start, mut right, mut wrong) = (Instant::now(), HashMap::new(), Vec::new());
    bar.set_message("all right");
    let checks = check_all::check_all(&services, seeds, at_a_time, &program, |service, checked| {
        if checked.is_right() {
            *right.entry(service.name).or_insert(0) += 1;
        } else {
            wrong.push((service.name, checked));
            bar.set_message(format!("{} wrong", wrong.len()));
        }
        bar.inc(1);
    });
    runtime().block_on(checks);
    bar.finish_and_clear();
    print_table(&services, &right, count);
    for (name, checked) in &wrong {
        println!("\n{name}, {}", checked.describe());
    }
    let checks = services.len() as u64 * count;
    println!(
        "\n{} of {checks} checks were right, in {:.0} s",
        checks - wrong.len() as u64,
        start.elapsed().as_secs_f64()
    );
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_table(services: &[&ZooService], right: &HashMap<&str, u64>, seeds: u64) {
    println!(
        "{:<26} {:<62} {:<24} right",
        "service", "what is wrong, or how it is right", "must be caught by"
    );
    for ZooService { name, what, caught_by, .. } in services {
        let right = right.get(name).copied().unwrap_or_default();
        println!("{name:<26} {what:<62} {:<24} {right} of {seeds}", caught_by.unwrap_or("-"));
    }
}

/// Serves one until the process is killed.
pub(crate) fn serve(name: &str, port: u16, folder: &Path) -> ExitCode {
    let Some(service) = table::named(name) else { return unknown(name) };
    match runtime().block_on(start::serve(service, port, folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Sends what the environment asks for.
pub(crate) fn call(name: &str, folder: &Path) -> ExitCode {
    let Some(client) = clients::named(name) else {
        eprintln!("there is no client {name:?} in the zoo; these there are:");
        for client in clients::all() {
            eprintln!("  {:26} {}", client.name, client.what);
        }
        return ExitCode::from(2);
    };
    match clients::call(client, folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onceward-verify: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be started")
}

fn unknown(name: &str) -> ExitCode {
    eprintln!("there is no {name:?} in the zoo; these there are:");
    for service in table::all() {
        eprintln!("  {:26} {}", service.name, service.what);
    }
    ExitCode::from(2)
}

fn failed(error: &std::io::Error) -> ExitCode {
    eprintln!("onceward-verify: {error}");
    ExitCode::from(2)
}
