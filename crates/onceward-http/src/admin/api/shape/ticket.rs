//! A ticket as one opaque text: the claim it proves, and the policy it was made under, so that nobody
//! has to repeat the policy with every call. It is not signed, because it needs not be: its attempt is
//! 128 random bits that are shown to nobody else.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use onceward::{Fence, Id, Ticket};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{PolicyAsked, attempt};
use crate::admin::problem::Problem;

/// Proof of a claim, opaque. A client that shows it is the owner.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct TicketText(pub String);

/// What is inside. The names are short because the text travels with every call.
#[derive(Serialize, Deserialize)]
struct Inside {
    s: String,
    o: String,
    k: String,
    a: String,
    f: u64,
    p: PolicyAsked,
}

impl TicketText {
    pub(in crate::admin) fn new(ticket: &Ticket, policy: &PolicyAsked) -> Self {
        let inside = Inside {
            s: ticket.id().scope().into(),
            o: ticket.id().operation().into(),
            k: ticket.id().key().into(),
            a: ticket.attempt().to_string(),
            f: ticket.fence().0,
            p: policy.clone(),
        };
        let json = serde_json::to_vec(&inside).expect("plain values are JSON");
        Self(BASE64_URL_SAFE_NO_PAD.encode(json))
    }

    pub(in crate::admin) fn read(&self) -> Result<Ticket, Problem> {
        let inside: Option<Inside> =
            BASE64_URL_SAFE_NO_PAD.decode(&self.0).ok().and_then(|json| serde_json::from_slice(&json).ok());
        let inside =
            inside.ok_or_else(|| Problem::Invalid("`ticket` must be a text that a claim gave".into()))?;
        let id = Id::from_columns(&inside.s, &inside.o, &inside.k)?;
        Ok(Ticket::new(id, attempt(&inside.a)?, Fence(inside.f), inside.p.read()?))
    }
}
