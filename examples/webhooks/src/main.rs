//! `STRIPE_SECRET=whsec_… GITHUB_SECRET=… cargo run -p webhooks`: listens on 127.0.0.1:3000, receipts in `./webhooks-data`.

use onceward::Onceward;
use webhooks::{Ledger, SenderSecrets, app};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let senders =
        SenderSecrets { stripe: std::env::var("STRIPE_SECRET")?, github: std::env::var("GITHUB_SECRET")? };
    let onceward = Onceward::new(onceward_stores::open("embedded:./webhooks-data").await?)?;
    // A service of your own keeps this one secret, and the same after a restart.
    let app = app(&onceward, [7; 32], &senders, &Ledger::default())?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}
