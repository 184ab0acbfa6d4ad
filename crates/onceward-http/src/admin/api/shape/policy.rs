//! The type of the receipts API for a policy: a preset, and what differs from it.

use std::time::Duration;

use onceward::{OnDuplicate, OnExpired, OnFailure, OnUnknown, Policy, PolicyBuilder, Retention};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::route::Route;

/// The contract for one kind of operation: a preset, and what differs from it.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyAsked {
    /// Where to start from.
    pub preset: Preset,
    /// How long a claim lasts between renewals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How long the outcome is kept and replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_ms: Option<u64>,
    /// Refuse the key for this long after that, instead of taking it for a new intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_expired_ms: Option<u64>,
    /// The effect of a failed outcome on the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<FailureRule>,
    /// The treatment of an unknown outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_unknown: Option<UnknownRule>,
    /// How long what you have sent can still take effect after the lease has ended: until then "not done" is refused, except
    /// by force. By default 60 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_effect_max_ms: Option<u64>,
}

/// A policy to start from.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// For requests: kept 24 hours, a failure is the answer, an unknown outcome is held.
    #[default]
    Http,
    /// For messages: kept 7 days, a failure or a crash frees the key for the next delivery.
    Queue,
    /// For money: kept forever, an unknown outcome is held.
    Ledger,
}

/// The effect of a failed outcome on the key.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureRule {
    /// The failure is the answer: kept and replayed.
    Replay,
    /// It is forgotten: the same key may be tried again.
    Retry,
}

/// The treatment of an unknown outcome.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownRule {
    /// Never run again by itself: held until it is settled.
    Hold,
    /// Run again, with a higher fence.
    Retry,
}

impl PolicyAsked {
    /// The policy itself.
    pub(in crate::admin) fn read(&self) -> onceward::Result<Policy> {
        self.to_builder().build()
    }

    fn to_builder(&self) -> PolicyBuilder {
        let preset = match self.preset {
            Preset::Http => Policy::http(),
            Preset::Queue => Policy::queue(),
            Preset::Ledger => Policy::ledger(),
        };
        let late = self.late_effect_max_ms.map_or(Route::LATE_EFFECT_MAX, Duration::from_millis);
        let mut policy = preset.to_builder().with_late_effect_max(late);
        if let Some(lease) = self.lease_ms {
            policy = policy.with_lease(Duration::from_millis(lease));
        }
        if let Some(keep) = self.keep_ms {
            policy = policy.with_retention(Retention::For(Duration::from_millis(keep)));
        }
        if let Some(keep) = self.refuse_expired_ms {
            let keep = Retention::For(Duration::from_millis(keep));
            policy = policy.with_on_expired(OnExpired::Refuse(keep));
        }
        if let Some(rule) = self.on_failure {
            policy = policy.with_on_failure(match rule {
                FailureRule::Replay => OnFailure::Replay,
                FailureRule::Retry => OnFailure::Retry,
            });
        }
        if let Some(rule) = self.on_unknown {
            policy = policy.with_on_unknown(match rule {
                UnknownRule::Hold => OnUnknown::Hold,
                UnknownRule::Retry => OnUnknown::Retry,
            });
        }
        policy
    }

    /// The policy of a claim that waits this long for one that is running. Over HTTP a claim waits
    /// only if it says so: the preset's own wait does not apply.
    pub(in crate::admin) fn waiting(&self, wait_ms: Option<u64>) -> onceward::Result<Policy> {
        let rule = match wait_ms {
            None | Some(0) => OnDuplicate::Conflict,
            Some(wait) => OnDuplicate::Wait(Duration::from_millis(wait)),
        };
        self.to_builder().with_on_duplicate(rule).build()
    }
}
