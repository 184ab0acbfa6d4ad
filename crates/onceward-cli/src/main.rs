//! The binary `onceward`. Each command has a module of its own; this file only names them.

// First, because its macros replace those of the standard library in everything below.
#[macro_use]
mod output;

mod address;
mod admin;
mod complete;
mod completions;
mod config;
mod dead;
mod demo;
#[cfg(test)]
mod fuzz_test;
mod help;
mod http_call;
mod input;
mod listener;
mod machine;
mod measured_store;
mod migrate;
mod proxy;
mod receipts;
mod relay;
mod sagas;
mod send;
mod serve;
mod telemetry;
mod verify;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Requests make many small allocations: the allocator is a tenth of the cost of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  onceward demo                                        # run a demonstration
  onceward proxy --upstream http://127.0.0.1:3000      # put the gateway in front of a service
  onceward receipts list --state unknown               # unknown outcomes, to be settled
  onceward COMMAND --help                              # options, examples and exit codes of a command";

/// Idempotency keys and safe retries for HTTP services.
///
/// A request that is sent again takes effect once, and every copy gets the same response.
#[derive(Parser)]
#[command(name = "onceward", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Proxy(Box<proxy::Args>),
    Config(config::CheckArgs),
    Demo(demo::Args),
    #[command(hide = true)]
    DemoService(demo::ServiceArgs),
    Receipts(receipts::Args),
    Dead(dead::Args),
    Relay(relay::Args),
    Sagas(sagas::Args),
    Serve(serve::Args),
    Verify(Box<verify::Args>),
    Send(send::Args),
    Machine(machine::Args),
    Complete(complete::Args),
    Migrate(migrate::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    use_small_pages();
    let command = Cli::parse().command;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("onceward: cannot start: {error}");
            return ExitCode::from(2);
        }
    };
    // Receipts, journals and secrets are for their owner only, whichever library makes the files.
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let run = AssertUnwindSafe(|| runtime.block_on(run(command)));
    let code = match catch_unwind(run) {
        Ok(code) => code,
        Err(payload) if output::is_closed_pipe(&*payload) => ExitCode::from(output::CLOSED_PIPE),
        Err(payload) => resume_unwind(payload),
    };
    telemetry::end();
    code
}

async fn run(command: Command) -> ExitCode {
    match command {
        Command::Complete(args) => args.run().await,
        Command::Migrate(args) => args.run().await,
        Command::Proxy(args) => args.run().await,
        Command::Config(args) => args.run(),
        Command::Demo(args) => args.run().await,
        Command::DemoService(args) => args.run().await,
        Command::Receipts(args) => args.run().await,
        Command::Dead(args) => args.run().await,
        Command::Relay(args) => args.run().await,
        Command::Sagas(args) => args.run().await,
        Command::Serve(args) => args.run().await,
        Command::Verify(args) => args.run().await,
        Command::Send(args) => args.run().await,
        Command::Machine(args) => args.run(),
        Command::Completions(args) => args.run(Cli::command()),
    }
}

/// The kernel clears a huge page at once when it is first touched, which takes as long as several requests. Before the
/// first thread, so that it holds for all memory.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        // Only slower: some sandboxes forbid it.
        tracing::debug!(%error, "huge pages cannot be turned off");
    }
}
