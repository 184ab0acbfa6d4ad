//! A payout: the request reserves the money and enqueues a task, in one transaction; a worker asks an
//! external service to transfer it, and confirms. After a crash, the task resumes after the last step that was
//! finished, whether the client retries or not: the task's input is in its receipt.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward::{Ask, Backoff, Fingerprint, Id, Lease, Outcome, Policy, Stopped, Worker, WorkerOptions};
use onceward_http::ResponseLease;

use crate::charges::NewCharge;
use crate::{App, Failure};

/// The operation of the tasks.
const OPERATION: &str = "payout";

/// `POST /payouts`: accepted, or not at all.
pub async fn pay_out(
    State(app): State<App>,
    Extension(lease): Extension<ResponseLease>,
    Json(new): Json<NewCharge>,
) -> Result<Response, Failure> {
    let input = serde_json::to_vec(&new)?;
    let id = Id::new(lease.id().scope(), OPERATION, lease.id().key())?;
    let task = Ask::new(id, Fingerprint::of(&input), app.payout_policy.clone()).with_input(input);
    let accepted = app.database.accept_payout(&lease, &new, &app.onceward, &task).await?;
    app.onceward.wake_workers();
    Ok(accepted.into_response())
}

/// `GET /payouts/{key}`: its transfer, empty as long as there is none.
pub async fn show(State(app): State<App>, Path(key): Path<String>) -> Result<String, Failure> {
    Ok(app.database.payout(&key).await?)
}

/// How payouts are worked on. Frequent restarts must not turn a payout into a dead letter.
pub fn policy(lease: Duration) -> onceward::Result<Policy> {
    let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));
    Policy::queue().to_builder().with_lease(lease).with_tries_max(100).with_backoff(backoff).build()
}

/// Works on accepted payouts, including those of a process that died.
pub fn worker(app: &App) -> onceward::Result<Worker> {
    let (app_there, policy) = (app.clone(), Arc::clone(&app.payout_policy));
    let lease = policy.lease();
    let options = WorkerOptions::default().with_pause(lease).with_grace(lease);
    let work = move |lease| finish(app_there.clone(), lease);
    Worker::builder(app.onceward.clone())
        .with_operation(OPERATION, policy, work)
        .with_options(options)
        .build()
}

async fn finish(app: App, lease: Lease) -> Result<Outcome, Stopped> {
    let asked: NewCharge = serde_json::from_slice(lease.input().map_or(b"", |input| &input[..]))?;
    let transfer = lease.step("transfer", async |step: Lease| {
        // The same key on every try: the provider transfers once, however often it is asked.
        Ok(Outcome::succeeded(app.provider.transfer(step.child("transfer")?, asked.amount).await?))
    });
    let transfer = transfer.await?.into_result()?.outcome;
    Ok(app.database.confirm_payout(&lease, transfer.body()).await?)
}
