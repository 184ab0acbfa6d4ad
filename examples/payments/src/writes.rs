//! What each handler and each task writes, in any of the databases: the transaction says which dialect it speaks.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onceward::{Enqueued, Join, Onceward, Result, Stopped};
use onceward_flows::{Saga, Step, StepResult};
use onceward_stores::sql::{self, Cell, Dialect, SqlTransaction, States, Transition, Value};

use crate::charges::{Charge, NewCharge};

const ORDERS: States<'static> = States::new("orders", "id", "state");

/// Nothing here guards against a second charge: the receipt in the same transaction does.
pub async fn charge(mut tx: impl SqlTransaction, new: &NewCharge, key: &str) -> Result<Response, Stopped> {
    let insert = "INSERT INTO charges (account, amount, idempotency_key) VALUES ";
    let values = [Value::Text(&new.account), Value::Int(Some(new.amount)), Value::Text(key)];
    let row = if tx.dialect() == Dialect::MySql {
        tx.fetch(&format!("{insert} (?, ?, ?)"), &values).await?;
        tx.fetch("SELECT LAST_INSERT_ID()", &[]).await?
    } else {
        tx.fetch(&format!("{insert} ($1, $2, $3) RETURNING id"), &values).await?
    };
    let Some([Cell::Int(id), ..]) = row.as_deref() else {
        return Err(Stopped::before_effect("the charge has no number"));
    };
    let charge =
        Charge { id: *id, account: new.account.clone(), amount: new.amount, idempotency_key: key.to_owned() };
    Ok((StatusCode::CREATED, Json(charge)).into_response())
}

pub async fn place_order(mut tx: impl SqlTransaction, order: &str) -> Result<Response, Stopped> {
    let row = [("id", Value::Text(order)), ("state", Value::Text("placed"))];
    let is_new = sql::insert(&mut tx, "orders", &row).await? == sql::Inserted::New;
    let word = if is_new { "placed" } else { "was placed before" };
    Ok((StatusCode::CREATED, word).into_response())
}

pub async fn pay_order(mut tx: impl SqlTransaction, order: &str) -> Result<Response, Stopped> {
    let moved = sql::transition(&mut tx, ORDERS, Value::Text(order), "placed", "paid").await?;
    Ok(match moved {
        Transition::Changed => {
            let confirm = places(&tx, "UPDATE orders SET confirmations = confirmations + 1 WHERE id = $1");
            tx.fetch(&confirm, &[Value::Text(order)]).await?;
            "paid".into_response()
        }
        Transition::AlreadyThere => "was paid before".into_response(),
        Transition::Illegal => (StatusCode::CONFLICT, "illegal").into_response(),
    })
}

/// The reservation, the beginning of the saga and the answer to the client: all of them, or none.
pub async fn accept_payout(
    mut tx: impl SqlTransaction + Join,
    new: &NewCharge,
    key: &str,
    onceward: &Onceward,
    payout: &Saga,
) -> Result<Response, Stopped> {
    let row = [
        ("id", Value::Text(key)),
        ("account", Value::Text(&new.account)),
        ("amount", Value::Int(Some(new.amount))),
        ("transfer", Value::Text("")),
    ];
    sql::insert(&mut tx, "payouts", &row).await?;
    match payout.start_in(onceward, &mut tx, key, serde_json::to_vec(new)?).await? {
        Enqueued::Accepted | Enqueued::AlreadyThere(_) => {
            Ok((StatusCode::ACCEPTED, format!("/payouts/{key}")).into_response())
        }
        Enqueued::Refused(refusal) => Ok((StatusCode::CONFLICT, refusal.to_string()).into_response()),
        // A later version may know more answers: nothing is written, and a retry may try again.
        _ => Err(Stopped::before_effect("the saga was not started")),
    }
}

/// The last step of a payout: written and recorded together.
pub async fn confirm_payout(mut tx: impl SqlTransaction, step: Step) -> StepResult<String> {
    let transfer = step.result_of("transfer").map(|transfer| String::from_utf8_lossy(transfer).into_owned());
    let transfer = transfer.unwrap_or_default();
    let confirm = places(&tx, "UPDATE payouts SET transfer = $1 WHERE id = $2");
    tx.fetch(&confirm, &[Value::Text(&transfer), Value::Text(step.saga().key())]).await?;
    Ok(transfer)
}

/// A statement with its placeholders as the dialect writes them: `$1, $2` in that order, or `?, ?`.
fn places(tx: &impl SqlTransaction, statement: &str) -> String {
    match tx.dialect() {
        Dialect::MySql => statement.replace("$1", "?").replace("$2", "?"),
        _ => statement.to_owned(),
    }
}
