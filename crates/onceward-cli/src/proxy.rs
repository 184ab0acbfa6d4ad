//! `onceward proxy`: the gateway.

use std::process::ExitCode;

/// What `onceward proxy` is told on the command line.
#[derive(clap::Args)]
pub struct Args {
    /// The service behind the gateway, such as <http://127.0.0.1:3000>.
    #[arg(long, value_name = "URL")]
    upstream: String,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        eprintln!("onceward: {}: not there yet", self.upstream);
        ExitCode::from(2)
    }
}
