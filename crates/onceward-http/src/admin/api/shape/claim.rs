//! The types of the receipts API for claims: claim, renew, complete, release and settle.

use std::time::Duration;

use onceward::{Completed, Ticket};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{OutcomeGiven, OutcomeShown, PolicyAsked, TicketText};

/// Asks for an intent.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimAsked {
    /// The caller's scope: a tenant, an account.
    pub scope: String,
    /// The operation: a job, a consumer, a route.
    pub operation: String,
    /// Your own token for this one intent: the same on every try, and for nothing else.
    pub key: String,
    /// The exact request, as a text to be hashed. The same key with another fingerprint is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Names this try (a new random UUID): if the answer gets lost, asking again with it finds your own
    /// claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// Wait this long for one that is running. Without it, a running one is `in-progress` at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The contract.
    #[serde(default)]
    pub policy: PolicyAsked,
}

/// The intent is yours until the lease ends.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClaimMade {
    /// True.
    pub claimed: bool,
    /// Proves that it is yours: for renew, complete, release and `/v1/unknown`.
    pub ticket: TicketText,
    /// Names this try.
    pub attempt: String,
    /// Grows with every takeover. Pass it to the service that has the effect, so that a previous owner is refused.
    pub fence: u64,
    /// How long it is yours, if you do not renew it.
    pub lease_ms: u64,
}

/// The intent has been carried out.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ClaimReplayed {
    /// False.
    pub claimed: bool,
    /// The result.
    pub outcome: OutcomeShown,
    /// The fence of the run that did it.
    pub fence: u64,
    /// How long a retry will still get this outcome; absent where it is kept forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// Shows a ticket.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TicketAsked {
    /// As the claim gave it.
    pub ticket: TicketText,
}

/// Ends a claim.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteAsked {
    /// As the claim gave it.
    pub ticket: TicketText,
    /// The result of the work.
    pub outcome: OutcomeGiven,
}

/// Settles an unknown outcome. Give either `done` or `not_done`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleAsked {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// The run that was checked, as its receipt shows it.
    pub fence: u64,
    /// It happened, and this was its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<OutcomeGiven>,
    /// It did not happen: the next claim runs. Refused while what was sent can still take effect.
    #[serde(default)]
    pub not_done: bool,
    /// With `not_done`: it will not happen any more either, also where what was sent could still take effect.
    #[serde(default)]
    pub force: bool,
    /// How long the outcome is kept.
    #[serde(default)]
    pub policy: PolicyAsked,
    /// The operator, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Names an intent that is to be changed.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntentAsked {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// The operator, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Ends an intent that is not to be run.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloseAsked {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// How long requests for it are refused as closed.
    #[serde(default)]
    pub policy: PolicyAsked,
    /// The operator, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ClaimMade {
    pub(in crate::admin) fn new(ticket: &Ticket, policy: &PolicyAsked, lease: Duration) -> Self {
        Self {
            claimed: true,
            ticket: TicketText::new(ticket, policy),
            attempt: ticket.attempt().to_string(),
            fence: ticket.fence().0,
            lease_ms: millis(lease),
        }
    }
}

impl ClaimReplayed {
    pub(in crate::admin) fn new(ran: &Completed) -> Self {
        Self {
            claimed: false,
            outcome: OutcomeShown::new(&ran.outcome),
            fence: ran.fence.0,
            expires_in_ms: ran.expires_in.map(millis),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
