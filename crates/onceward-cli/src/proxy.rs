//! `onceward proxy`: the gateway. The layer of `onceward-http` in front of a service that forwards.
//!
//! ```text
//!  client ─▶ serve ─▶ table (which route) ─▶ onceward-http's layer ─▶ forward ─▶ pool ─▶ upstream
//!              │                                                        fields: what each hop is told
//!              └ payload: bodies at a pace        admin listener: health, metrics, receipts
//! ```

mod caller;
mod fields;
mod forward;
mod jwt;
mod lanes;
mod payload;
mod pool;
mod reconcile;
mod reload;
mod secret;
mod serve;
mod start;
mod table;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::Settings;
use crate::telemetry;

pub use fields::Forwarding;
pub use forward::ForwardKey;

/// Put the gateway in front of an HTTP service.
///
/// Requests with an Idempotency-Key take effect once, however often they are sent, and every copy gets the
/// same answer. Requests without one pass through, unless a route requires it.
///
/// Every value below can also stand in the file, under the same name with underscores, or in the environment
/// variable beside it. Flags count before variables, and those before the file.
#[derive(clap::Args)]
pub struct Args {
    /// A TOML file with the values below, `[defaults]` and `[[route]]` tables. `onceward config check FILE`
    /// shows what it comes to. Routes are reloaded when it changes, and on SIGHUP.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    telemetry: telemetry::Args,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        if let Err(code) = self.telemetry.start() {
            return code;
        }
        match start::run(self.config, self.settings).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("onceward: {error}");
                ExitCode::from(2)
            }
        }
    }
}
