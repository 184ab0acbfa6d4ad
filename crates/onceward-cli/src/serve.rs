//! `onceward serve`: the receipts API by itself, for services that want claims around their own code and
//! have no use for a gateway.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Onceward, Sweep};
use onceward_http::admin::{Admin, Readiness};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::address::ListenAddress;
use crate::admin;
use crate::measured;
use crate::output;
use crate::telemetry;

/// What is due is swept this often.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Serve the receipts API by itself, for claims around your own code.
///
/// The API is described by /openapi.json; `onceward receipts` speaks it. Receipts past their time are swept.
#[derive(clap::Args)]
pub struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", env = "ONCEWARD_ADMIN", default_value = "127.0.0.1:8081")]
    admin: ListenAddress,
    /// Who shows this may come in. Needed where others can reach the listener.
    #[arg(long, value_name = "TOKEN", env = "ONCEWARD_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Where receipts are kept.
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", default_value = "embedded:./onceward-data")]
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
        let auth = admin::auth(address, self.admin_token.as_deref())?;
        let (store, measures) = measured::open(&self.store).await.map_err(|error| error.to_string())?;
        let onceward = Onceward::new(store).map_err(|error| error.to_string())?;
        let readiness = Arc::new(Readiness::new());
        let admin = Admin::new(onceward.clone())
            .with_readiness(readiness.clone())
            .with_metrics(move |out| measures.write(out));
        output::announce(&format!("admin on http://{address}"));
        tokio::select! {
            () = admin::serve(listener, admin::router(&admin, auth), async {
                stopped().await;
                readiness.drain();
            }) => {}
            () = onceward.sweep_forever(Sweep::default(), SWEEP_EVERY) => {}
        }
        Ok(())
    }
}

/// Is ready when somebody wants the process to end.
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
