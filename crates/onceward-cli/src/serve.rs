//! `onceward serve`: serves the receipts API without a gateway, for services that claim idempotency keys around their
//! own code.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use onceward::Sweep;
use onceward_http::admin::{Admin, Readiness};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::address::ListenAddress;
use crate::admin;
use crate::config::Period;
use crate::help;
use crate::measured_store;
use crate::output;
use crate::telemetry;

/// The interval of sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
Examples:
  onceward serve
  ONCEWARD_ADMIN_TOKEN=$(openssl rand -hex 32) onceward serve --admin :8081 --store postgres://app@db/shop

Exit code:
  0  stopped by SIGTERM or SIGINT
  2  could not start; the message says why";

/// Serve the receipts API without a gateway.
///
/// For services in any language that claim an idempotency key around their own code. /openapi.json describes the
/// API; /healthz, /readyz and /metrics are for monitors. Expired receipts are removed.
#[derive(clap::Args)]
#[command(after_long_help = help::with_durable_stores(AFTER_HELP))]
pub struct Args {
    /// Where to listen: `127.0.0.1:8081`, `localhost:8081`, or `:8081` for all interfaces.
    #[arg(long, value_name = "ADDRESS", env = "ONCEWARD_ADMIN", default_value = "127.0.0.1:8081")]
    admin: ListenAddress,
    /// What clients must send as `Authorization: Bearer TOKEN`. Required unless the address is loopback; at least 16
    /// characters.
    #[arg(long, value_name = "TOKEN", env = "ONCEWARD_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// What applications must send instead, to claim, renew and complete. They can then do nothing else, and operators
    /// not this. Needs an admin token [default: the admin token is for both].
    #[arg(long, value_name = "TOKEN", env = "ONCEWARD_APP_TOKEN", hide_env_values = true)]
    app_token: Option<String>,
    /// An unknown outcome that was not settled for this long becomes dead. It is still unknown, and is not tried
    /// again until it is settled [default: never].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_UNKNOWN_AFTER")]
    unknown_after: Option<Period>,
    /// Where receipts are stored; see below.
    #[arg(
        long,
        value_name = "URL",
        env = "ONCEWARD_STORE",
        hide_env_values = true,
        default_value = "embedded:./onceward-data"
    )]
    store: String,
    #[command(flatten)]
    telemetry: telemetry::Args,
}

impl Args {
    pub async fn run(self) -> ExitCode {
        if let Err(code) = self.telemetry.start() {
            return code;
        }
        match self.serve().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                eprintln!("onceward: {message}");
                ExitCode::from(2)
            }
        }
    }

    async fn serve(self) -> Result<(), String> {
        let listener = TcpListener::bind(self.admin.0).await;
        let listener = listener.map_err(|error| format!("cannot listen on {}: {error}", self.admin))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let auth = admin::auth(address, self.admin_token.as_deref(), self.app_token.as_deref())?;
        let (builder, store_metrics) =
            measured_store::open(&self.store).await.map_err(|error| error.to_string())?;
        let onceward = builder.build().map_err(|error| error.to_string())?;
        let sweep = Sweep::default().with_unknown_after(self.unknown_after.map(|Period(time)| time));
        let readiness = Arc::new(Readiness::new());
        let admin = Admin::new(onceward.clone())
            .with_readiness(readiness.clone())
            .with_metrics(move |out| store_metrics.write(out));
        let letters = admin::dead_letters::routes(&admin, &self.store);
        let admin = admin.with_operator_routes(letters);
        output::announce(&format!("admin on http://{address}"));
        tokio::select! {
            () = admin::serve(listener, admin::router(&admin, auth), async {
                stopped().await;
                readiness.drain();
            }) => {}
            () = onceward.sweep_forever(sweep, SWEEP_EVERY) => {}
        }
        Ok(())
    }
}

/// Resolves on SIGTERM or SIGINT.
pub async fn stopped() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be received; only SIGKILL will end this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
