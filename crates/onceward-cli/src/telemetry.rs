//! What the process says about itself while it runs: logs, and traces where they are built in.

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How a command logs. Logs go to standard error; standard output belongs to the command.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// What to log: error, warn, info, debug, trace, or a filter such as `onceward=debug,info`.
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", default_value = "info")]
    log: String,
    /// How to log it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

impl Args {
    /// Begins to log. Fails, with a message said already, if the filter makes no sense.
    pub fn start(&self) -> Result<(), ExitCode> {
        let filter = EnvFilter::try_new(&self.log).map_err(|error| {
            eprintln!("onceward: --log {}: {error}", self.log);
            ExitCode::from(2)
        })?;
        let registry = tracing_subscriber::registry().with(filter);
        let to_stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        match self.log_format {
            Format::Text => {
                use std::io::IsTerminal;
                registry.with(to_stderr.with_ansi(std::io::stderr().is_terminal())).init();
            }
            Format::Json => registry.with(to_stderr.json().flatten_event(true)).init(),
        }
        Ok(())
    }
}

/// A key as it may stand in a log: enough to find the same one again, not enough to use it.
pub fn hashed(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex()[..12].to_owned()
}
