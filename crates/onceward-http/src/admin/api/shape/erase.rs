//! The types of the receipts API for erasures.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Erases one receipt.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseAsked {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// Remove the receipt itself, so that the key is free. The same intent may then run again.
    #[serde(default)]
    pub reopen: bool,
    /// The operator, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Erases all receipts that fit what is given; at least one of scope, operation and key.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EraseMatchingAsked {
    /// Only this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Only this operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Only this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Remove the receipts themselves, so that their keys are free. The same intents may then run again.
    #[serde(default)]
    pub reopen: bool,
    /// The `next` of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The operator, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, for the audit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The result of erasing many receipts.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ErasedShown {
    /// How many intents say nothing any more.
    pub erased: usize,
    /// Those that were left as they are.
    pub refused: Vec<RefusedShown>,
    /// Give it as `cursor` to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A receipt that was left as it is, and why.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct RefusedShown {
    /// The caller's scope.
    pub scope: String,
    /// The operation.
    pub operation: String,
    /// With which key.
    pub key: String,
    /// Why it was not changed.
    pub why: String,
}
