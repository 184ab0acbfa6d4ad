//! A payout: the request reserves the money and starts a saga, in one transaction; a worker asks an external service to
//! transfer it, and confirms in a second transaction. After a crash, the saga goes on after the last step that was
//! finished, whether the client retries or not.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use onceward::{Backoff, Onceward, Worker, WorkerOptions};
use onceward_flows::{Saga, Sagas, Step, StepResult};
use onceward_http::ResponseLease;
use onceward_stores::sql::mysql::MySqlTx;
use onceward_stores::sql::postgres::PostgresTx;
use onceward_stores::sql::sqlite::SqliteTx;
use onceward_stores::sql::sqlx::SqlxTx;

use crate::charges::NewCharge;
use crate::database::Database;
use crate::provider::Provider;
use crate::{App, Failure, writes};

/// Frequent restarts must not use up the tries of a payout.
const TRIES_MAX: u16 = 100;

/// `POST /payouts`: accepted, or not at all.
pub async fn pay_out(
    State(app): State<App>,
    Extension(lease): Extension<ResponseLease>,
    Json(new): Json<NewCharge>,
) -> Result<Response, Failure> {
    let payout = app.payout.in_scope(lease.id().scope());
    let accepted = app.database.accept_payout(&lease, &new, &app.onceward, &payout).await?;
    app.onceward.wake_workers();
    Ok(accepted.into_response())
}

/// `GET /payouts/{key}`: its transfer, empty as long as there is none.
pub async fn show(State(app): State<App>, Path(key): Path<String>) -> Result<String, Failure> {
    Ok(app.database.payout(&key).await?)
}

/// The steps of a payout.
pub fn saga(database: &Database, provider: Provider, lease: Duration) -> onceward::Result<Saga> {
    let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(60));
    let transfer = move |step: Step| {
        let provider = provider.clone();
        async move {
            let asked: NewCharge = step.input_json()?;
            // The same key on every try: the provider transfers once, however often it is asked.
            StepResult::Ok(provider.transfer(step.key()?, asked.amount).await?)
        }
    };
    let saga = Saga::builder("payout")
        .step("transfer", transfer)
        // The provider honours the key, also while the first copy of a call runs.
        .with_retry_unknown()
        .with_tries(TRIES_MAX, backoff)
        // Nothing after it can be refused.
        .no_undo();
    let saga = match database.clone() {
        Database::Postgres(pool) => {
            saga.step_in("confirm", pool, |step, tx: PostgresTx| writes::confirm_payout(tx, step))
        }
        Database::MySql(pool) => {
            saga.step_in("confirm", pool, |step, tx: MySqlTx| writes::confirm_payout(tx, step))
        }
        Database::Sqlite(file) => {
            saga.step_in("confirm", file, |step, tx: SqliteTx| writes::confirm_payout(tx, step))
        }
        Database::SqlxPostgres(pool, _) => {
            saga.step_in("confirm", pool, |step, tx: SqlxTx<sqlx::Postgres>| writes::confirm_payout(tx, step))
        }
        Database::SqlxMySql(pool, _) => {
            saga.step_in("confirm", pool, |step, tx: SqlxTx<sqlx::MySql>| writes::confirm_payout(tx, step))
        }
    };
    saga.with_tries(TRIES_MAX, backoff).with_lease(lease).build()
}

/// Works on accepted payouts, including those of a process that died.
pub fn worker(onceward: &Onceward, payout: &Saga, lease: Duration) -> onceward::Result<Worker> {
    let options = WorkerOptions::default().with_pause(lease).with_grace(lease);
    let worker = Worker::builder(onceward.clone()).with_options(options);
    Sagas::new().with_saga(payout).register(worker)?.build()
}
