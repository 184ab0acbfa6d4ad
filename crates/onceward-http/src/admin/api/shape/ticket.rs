//! Encodes a ticket as one opaque text: the claim that it proves and the policy of the claim, so that calls need not
//! repeat the policy. It needs no signature: its attempt is 128 random bits that only the owner knows.

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

/// The content of a ticket. The names are short because the text is sent with every call.
#[derive(Serialize, Deserialize)]
struct TicketFields {
    s: String,
    o: String,
    k: String,
    a: String,
    f: u64,
    p: PolicyAsked,
}

impl TicketText {
    pub(in crate::admin) fn new(ticket: &Ticket, policy: &PolicyAsked) -> Self {
        let fields = TicketFields {
            s: ticket.id().scope().into(),
            o: ticket.id().operation().into(),
            k: ticket.id().key().into(),
            a: ticket.attempt().to_string(),
            f: ticket.fence().0,
            p: policy.clone(),
        };
        let json = serde_json::to_vec(&fields).expect("plain values are JSON");
        Self(BASE64_URL_SAFE_NO_PAD.encode(json))
    }

    pub(in crate::admin) fn read(&self) -> Result<Ticket, Problem> {
        let fields: Option<TicketFields> =
            BASE64_URL_SAFE_NO_PAD.decode(&self.0).ok().and_then(|json| serde_json::from_slice(&json).ok());
        let fields =
            fields.ok_or_else(|| Problem::Invalid("`ticket` must be a text that a claim gave".into()))?;
        let id = Id::from_columns(&fields.s, &fields.o, &fields.k)?;
        Ok(Ticket::new(id, attempt(&fields.a)?, Fence(fields.f), fields.p.read()?))
    }
}
