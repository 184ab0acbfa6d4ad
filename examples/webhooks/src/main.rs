//! `STRIPE_SECRET=whsec_… GITHUB_SECRET=… cargo run -p webhooks`: listens on 127.0.0.1:3000, everything in
//! `./webhooks.db`. `README.md` has requests to try.

use onceward::Onceward;
use webhooks::stored::{self, Invoices};
use webhooks::{Ledger, SenderSecrets, app};

/// A service of your own keeps this one secret, and the same after a restart.
const SECRET: [u8; 32] = [7; 32];

async fn stopped() {
    // Without signals it runs until it is killed, which loses nothing.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let senders =
        SenderSecrets { stripe: std::env::var("STRIPE_SECRET")?, github: std::env::var("GITHUB_SECRET")? };
    let onceward = Onceward::new(onceward_stores::open("sqlite:webhooks.db").await?)?;
    let invoices = Invoices::open("webhooks.db").await?;
    let (stored, handling) = stored::app(&onceward, SECRET, &senders.stripe, invoices, stopped())?;
    let app = app(&onceward, SECRET, &senders, &Ledger::default())?.merge(stored);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).with_graceful_shutdown(stopped()).await?;
    handling.await?;
    Ok(())
}
