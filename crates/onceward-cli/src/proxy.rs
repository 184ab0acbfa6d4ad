//! `onceward proxy`: the gateway, made of the layer of `onceward-http` around a service that forwards to the upstream.
//!
//! ```text
//!  client ─▶ serve ─▶ route_table ─▶ layer of onceward-http ─▶ forward ─▶ pool ─▶ upstream
//!              │                                                  └ fields: hop-by-hop and forwarded headers
//!              └ head_rules, path_rules: one host, one framing, one spelling
//!
//!  bodies: client_body ─▶ (layer) ─▶ pool     service_body ─▶ (layer) ─▶ sent_body     each with a deadline of its own
//! ```

mod body;
mod callers;
mod client_body;
mod direct;
mod direct_body;
mod direct_pool;
mod event_delivery;
mod fields;
mod file_descriptors;
mod forward;
mod handed_over;
mod head_rules;
mod identity_terms;
mod jwt;
mod known_identities;
mod known_secrets;
mod limits;
mod load_metrics;
mod own_records;
mod path_rules;
mod pool;
mod reconcile;
mod reload;
mod response_head;
mod route_table;
mod secret;
mod secrets_in_use;
mod sent_body;
mod serve;
mod service_body;
mod start;
mod tls;
mod unread_body;
mod upstream_stream;
mod worker_threads;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::Settings;
use crate::help;
use crate::telemetry;

use known_identities::NewIdentity;
use known_secrets::NewSecret;

pub use forward::ForwardKey;
#[cfg(test)]
pub use jwt::JwtVerifier;
pub use path_rules::{PathParameters, Spelling};
pub use pool::UpstreamReuse;

const AFTER_HELP: &str = "\
Examples:
  onceward proxy --upstream http://127.0.0.1:3000
  onceward proxy --upstream localhost:3000 --listen :8080 --store postgres://app@db/shop
  onceward proxy --config onceward.toml

Environment:
  ONCEWARD_SECRET  The key for hashing credentials and bodies: at least 32 random characters
                   (`openssl rand -hex 32`), the same on every gateway that shares a store. To change it, give
                   several with commas between them: the first is used, the others are still recognized.
                   Required, except with embedded: (created once and stored in its folder) and memory:.

Exit code:
  0    stopped by SIGTERM or SIGINT; requests in flight were finished
  2    could not start; the message says why
  130  stopped by a second signal, without waiting";

/// Put the gateway in front of an HTTP service.
///
/// Requests with an Idempotency-Key take effect once, however often they are sent, and every copy gets the
/// same response. Requests without a key pass through, unless a route requires one.
///
/// Each option can also be set in the file, under the same name with underscores, or in the environment variable
/// shown with it. Options override variables, and variables override the file.
#[derive(clap::Args)]
#[command(after_long_help = help::with_stores(AFTER_HELP))]
pub struct Args {
    /// A TOML file with the options below, `[defaults]` and `[[route]]` tables. `onceward config check FILE`
    /// shows what is in effect. Routes are reloaded when it changes, and on SIGHUP.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_CONFIG")]
    config: Option<PathBuf>,

    /// Start although the store has receipts of another secret, or of one that is not listed any more. They are then not
    /// found: a retry of a request from before runs again.
    #[arg(long)]
    accept_new_secret: bool,

    /// Forget the previous terms (`scope`, `operation`) of the routes. Without this, requests are also claimed under
    /// the terms that receipts in the store were written under. With it, a retry of a request from before runs again.
    #[arg(long)]
    accept_new_identity: bool,

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
        let new_secret = if self.accept_new_secret { NewSecret::Accepted } else { NewSecret::Refused };
        let new_identity =
            if self.accept_new_identity { NewIdentity::Accepted } else { NewIdentity::ClaimBoth };
        match start::run(self.config, self.settings, new_secret, new_identity).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("onceward: {error}");
                ExitCode::from(2)
            }
        }
    }
}
