//! `onceward demo`: a payments service behind the gateway, and six things that go wrong elsewhere.
//!
//! Everything is real: the service and the gateway are processes of this same binary, receipts are on
//! disk, and the kill is a SIGKILL. An act is what was expected and what was seen, as two sentences; it
//! went well if they are the same.

mod acts;
mod screen;
mod service;
mod stage;

use std::process::ExitCode;

pub use service::Args as ServiceArgs;

use screen::Screen;
use stage::Stage;

const AFTER_HELP: &str = "\
Examples:
  onceward demo          # then try it yourself; Ctrl-C ends it
  onceward demo --exit

Exit code:
  0  everything went as expected
  1  something did not
  2  could not start; the message says why";

/// See it work: a payments service behind the gateway, duplicates, a crash, an operator.
///
/// Takes a few seconds, then stays up for you to try. Everything is in a temporary folder that is removed at the
/// end; the ports are free ones.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// End after the last act.
    #[arg(long)]
    exit: bool,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        tokio::select! {
            ended = play(self.exit) => match ended {
                Ok(code) => code,
                Err(message) => {
                    eprintln!("onceward: {message}");
                    ExitCode::from(2)
                }
            },
            // Dropping the play ends its processes and removes its folder.
            () = crate::serve::stopped() => ExitCode::SUCCESS,
        }
    }
}

async fn play(exit: bool) -> Result<ExitCode, String> {
    let screen = Screen::new();
    let mut stage = Stage::set().await?;
    screen.opening(stage.gateway(), stage.service());
    let mut failed = 0;
    for (number, act) in acts::ALL.iter().enumerate() {
        screen.title(number + 1, act.title);
        let seen = act.play(&mut stage).await.unwrap_or_else(|error| format!("stopped: {error}"));
        failed += usize::from(seen != act.expected);
        screen.outcome(act.expected, &seen);
    }
    let charges = stage.charges().await?;
    let well = failed == 0 && charges == acts::PAYMENTS;
    screen.closing(failed, acts::ALL.len(), acts::PAYMENTS, charges);
    if exit {
        return Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Screen::try_it(stage.gateway(), stage.admin());
    std::future::pending().await
}
