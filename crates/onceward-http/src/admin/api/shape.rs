//! The request and response types of the receipts API. They are parsed here, once; handlers see only checked values.

mod claim;
mod erase;
mod outcome;
mod policy;
mod receipt;
mod search;
mod ticket;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use onceward::{Attempt, Cursor, Fingerprint, Id};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use claim::{
    ClaimAsked, ClaimMade, ClaimReplayed, CloseAsked, CompleteAsked, IntentAsked, SettleAsked, TicketAsked,
};
pub use erase::{EraseAsked, EraseMatchingAsked, ErasedShown, RefusedShown};
pub use outcome::{HttpShown, OutcomeGiven, OutcomeShown, Verdict};
pub use policy::{PolicyAsked, Preset};
pub use receipt::{ListAsked, ReceiptAsked, ReceiptShown, ReceiptsShown, State};
pub use search::{AuditAsked, AuditShown, ScopesAsked, ScopesShown, SearchedClaims};
pub use ticket::TicketText;

pub use crate::admin::audit::AuditEntry;
use crate::admin::problem::Problem;

/// Why something was refused (RFC 9457).
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ProblemShown {
    /// `urn:onceward:problem:` and the problem's name.
    #[serde(rename = "type")]
    pub kind: String,
    /// The title.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// The meaning in this case, and the next action.
    pub detail: String,
    /// Whether the same request may be sent again as it is.
    pub retryable: bool,
    /// The receipt that is in the way, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<ReceiptShown>>,
}

/// The id that a request names by its three parts.
macro_rules! named_by_id {
    ($($asked:ty),+) => {$(
        impl $asked {
            pub(in crate::admin) fn id(&self) -> onceward::Result<Id> {
                Id::from_columns(&self.scope, &self.operation, &self.key)
            }
        }
    )+};
}

named_by_id!(CloseAsked, EraseAsked, IntentAsked, ReceiptAsked, SettleAsked);

/// The fingerprint of what a caller gave to be hashed. Nothing counts as the empty text.
pub(super) fn fingerprint(text: Option<&str>) -> Fingerprint {
    Fingerprint::of(text.unwrap_or_default().as_bytes())
}

/// An attempt from 32 hexadecimal digits, with or without the dashes of a UUID.
pub(super) fn attempt(text: &str) -> Result<Attempt, Problem> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    digits.parse().map_err(|_| {
        Problem::Invalid(
            "`attempt` must be a UUID, or 32 hexadecimal digits: a new random one per try".into(),
        )
    })
}

/// A place in a list, as an earlier page gave it.
pub(in crate::admin) fn cursor(text: &str) -> Result<Cursor, Problem> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text);
    bytes.map(|bytes| Cursor(bytes.into())).map_err(|_| {
        Problem::Invalid("`cursor` must be the `next` of an earlier page of the same list".into())
    })
}

pub(in crate::admin) fn to_base64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod fuzz_test;
