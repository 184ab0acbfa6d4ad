//! A payout in three phases: reserve the money, have a foreign service transfer it, confirm. A crash
//! anywhere is taken up after the last phase that was finished.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward::{ChildKey, Lease, Outcome};

use crate::charges::NewCharge;
use crate::{App, Failure};

/// `POST /payouts`
pub async fn pay_out(
    State(app): State<App>,
    Extension(lease): Extension<Lease>,
    Json(new): Json<NewCharge>,
) -> Result<Response, Failure> {
    app.database.reserve(&lease, &new).await?;
    let transfer = async |step: Lease| {
        // The same key on every try: the provider transfers once, however often it is asked.
        let transfer = app.provider.transfer(step.child("transfer")?, new.amount).await;
        Ok(Outcome::succeeded(transfer))
    };
    let transfer = lease.step("transfer", transfer).await?.ran()?.outcome;
    app.database.confirm(&lease, transfer.body()).await?;
    Ok((StatusCode::CREATED, transfer.body().clone()).into_response())
}

/// Stands for a payment provider that honours keys.
#[derive(Clone, Default)]
pub struct Provider {
    transfers: Arc<Mutex<HashMap<ChildKey, String>>>,
}

impl Provider {
    #[expect(clippy::unused_async, reason = "a real one is far away")]
    async fn transfer(&self, key: ChildKey, amount: i64) -> String {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.entry(key).or_insert_with(|| format!("transfer {key} of {amount}")).clone()
    }
}
