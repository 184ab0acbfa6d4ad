//! `onceward demo`: runs six failure scenarios against a payments service behind the gateway.
//!
//! The service and the gateway are processes of this binary, receipts are on disk, and the kill is a SIGKILL. A
//! scenario describes in one line of text what it expects, and observes a line of the same form; it passes if the two
//! are equal.

mod processes;
mod scenarios;
mod screen;
mod service;

use std::process::ExitCode;

pub use service::Args as ServiceArgs;

use processes::DemoProcesses;
use screen::Screen;

const AFTER_HELP: &str = "\
Examples:
  onceward demo          # then try it yourself; Ctrl-C ends it
  onceward demo --exit

Exit code:
  0  every scenario passed
  1  a scenario failed
  2  could not start; the message says why";

/// Run a demonstration: a payments service behind the gateway, with duplicates, a crash and an operator.
///
/// Takes a few seconds, then keeps running so that you can try it. All data is in a temporary folder that is removed
/// at the end; the ports are free ones.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// End after the last scenario.
    #[arg(long)]
    exit: bool,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        tokio::select! {
            ended = run(self.exit) => match ended {
                Ok(code) => code,
                Err(message) => {
                    eprintln!("onceward: {message}");
                    ExitCode::from(2)
                }
            },
            // Dropping the future ends its processes and removes its folder.
            () = crate::serve::stopped() => ExitCode::SUCCESS,
        }
    }
}

async fn run(exit: bool) -> Result<ExitCode, String> {
    let screen = Screen::new();
    let mut demo = DemoProcesses::start().await?;
    screen.opening(demo.gateway(), demo.service());
    let mut failed = 0;
    for (number, scenario) in scenarios::ALL.iter().enumerate() {
        screen.title(number + 1, scenario.title);
        let seen = scenario.run(&mut demo).await.unwrap_or_else(|error| format!("stopped: {error}"));
        failed += usize::from(seen != scenario.expected);
        screen.outcome(scenario.expected, &seen);
    }
    let charges = demo.charges().await?;
    let passed = failed == 0 && charges == scenarios::PAYMENTS;
    screen.closing(failed, scenarios::ALL.len(), scenarios::PAYMENTS, charges);
    if exit {
        return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Screen::try_it(demo.gateway(), demo.admin());
    std::future::pending().await
}
