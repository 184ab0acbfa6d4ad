//! A service that receives events of Stripe and of GitHub, each once: the signature is verified over the raw body, and the
//! sender's event id is the idempotency key.
//!
//! The handlers below run at most once for an event that they answer with 2xx. Every other answer has the sender deliver it
//! again. In [`stored`] events are acknowledged first and handled afterwards.

pub mod stored;

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use onceward::{Onceward, Result};
use onceward_http::webhook::{Receiver, Scheme, Verifier};
use onceward_http::{OncewardLayer, Route};
use serde_json::Value;

/// What the service has done, one line for each effect.
pub type Ledger = Arc<Mutex<Vec<String>>>;

/// The secrets of the senders, as they show them.
pub struct SenderSecrets {
    /// Of the endpoint at Stripe: `whsec_…`.
    pub stripe: String,
    /// Of the hook at GitHub.
    pub github: String,
}

/// The service. `secret` keys the hashes in the receipts.
pub fn app(
    onceward: &Onceward,
    secret: [u8; 32],
    senders: &SenderSecrets,
    ledger: &Ledger,
) -> Result<Router> {
    let receives = |scheme, sender: &str| -> Result<OncewardLayer> {
        let receiver = Receiver::new(Verifier::new(scheme, [sender])?);
        let route = Route::preset("webhook")?.to_builder().with_webhook(receiver).build()?;
        Ok(OncewardLayer::new(onceward.clone(), secret, route))
    };
    let stripe = post(stripe).layer(receives(Scheme::Stripe, &senders.stripe)?);
    let github = post(github).layer(receives(Scheme::GitHub, &senders.github)?);
    Ok(Router::new().route("/stripe", stripe).route("/github", github).with_state(ledger.clone()))
}

/// An invoice that was paid unlocks an account.
async fn stripe(State(ledger): State<Ledger>, Json(event): Json<Value>) -> StatusCode {
    let invoice = &event["data"]["object"];
    match (event["type"].as_str(), invoice["customer"].as_str()) {
        (Some("invoice.paid"), Some(customer)) => {
            write(&ledger, format!("{customer} paid {}", invoice["amount_paid"]));
            StatusCode::OK
        }
        (Some("invoice.paid"), None) => StatusCode::UNPROCESSABLE_ENTITY,
        // Of no interest, and not to be sent again.
        _ => StatusCode::NO_CONTENT,
    }
}

/// A push starts a build.
async fn github(State(ledger): State<Ledger>, Json(event): Json<Value>) -> StatusCode {
    match (event["after"].as_str(), event["repository"]["full_name"].as_str()) {
        // A branch that was deleted has no commit.
        (Some(commit), Some(repository)) if event["deleted"] != true => {
            write(&ledger, format!("build {repository} at {commit}"));
            StatusCode::ACCEPTED
        }
        _ => StatusCode::NO_CONTENT,
    }
}

fn write(ledger: &Ledger, line: String) {
    ledger.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}
