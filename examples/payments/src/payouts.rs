//! A payout in three phases: reserve the money, have a foreign service transfer it, confirm. A crash
//! anywhere is taken up after the last phase that was finished: by the client's next try, or by the completer
//! if no client ever comes back.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward::{Completer, Lease, Onceward, Outcome, Pace, Policy, Stopped};
use onceward_http::snapshot::{Omitted, encode};

use crate::charges::NewCharge;
use crate::database::refused;
use crate::{App, Failure};

/// What the layer calls these intents.
const OPERATION: &str = "POST /payouts";

/// `POST /payouts`
pub async fn pay_out(
    State(app): State<App>,
    Extension(lease): Extension<Lease>,
    Json(new): Json<NewCharge>,
) -> Result<Response, Failure> {
    app.database.reserve(&lease, &new).await?;
    let transfer = app.transfer(&lease, new.amount).await?;
    Ok(paid_out(transfer))
}

/// Finishes payouts that were begun and that nobody asks for any more.
pub fn completer(onceward: Onceward, policy: Policy, app: App) -> onceward::Result<Completer> {
    let lease = policy.lease_duration();
    let pace = Pace { pause: lease, grace: lease, ..Pace::default() };
    let work = move |lease| complete(app.clone(), lease);
    Ok(Completer::new(onceward).operation(OPERATION, Arc::new(policy), work)?.pace(pace))
}

/// What was asked is not known here, only what the first phase has recorded of it. If it was never finished,
/// nothing was begun that anybody has to finish.
async fn complete(app: App, lease: Lease) -> Result<Outcome, Stopped> {
    let amount = app.database.reserved(&lease).await?;
    let transfer = app.transfer(&lease, amount).await?;
    // The very response that the client gets who comes back after all.
    let (response, _) = paid_out(transfer.clone()).into_parts();
    Ok(Outcome::succeeded(encode(response.status, &response.headers, &transfer, &Omitted::default())))
}

impl App {
    /// The second and third phase.
    async fn transfer(&self, lease: &Lease, amount: i64) -> onceward::Result<Bytes> {
        let transfer = async |step: Lease| {
            // The same key on every try: the provider transfers once, however often it is asked.
            Ok(Outcome::succeeded(self.provider.transfer(step.child("transfer")?, amount).await?))
        };
        let transfer = refused(lease.step("transfer", transfer).await?.ran())?.outcome;
        self.database.confirm(lease, transfer.body()).await?;
        Ok(transfer.body().clone())
    }
}

fn paid_out(transfer: Bytes) -> Response {
    (StatusCode::CREATED, transfer).into_response()
}
