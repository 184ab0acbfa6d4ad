//! Services that answer a retry with a changed response.

use super::careful::Habits;
use super::server::Reply;

/// The status is not kept.
pub(super) struct As200;

impl Habits for As200 {
    fn replay(&self, reply: Reply) -> Reply {
        Reply { status: 200, ..reply }
    }
}

/// Header fields are not kept.
pub(super) struct FieldsLost;

impl Habits for FieldsLost {
    fn replay(&self, mut reply: Reply) -> Reply {
        reply.fields.retain(|(name, _)| *name == "content-type");
        reply
    }
}

/// The body is kept as JSON and written again.
pub(super) struct BodyRewritten;

impl Habits for BodyRewritten {
    fn replay(&self, reply: Reply) -> Reply {
        let json: serde_json::Value = serde_json::from_str(&reply.body).unwrap_or_default();
        Reply { body: json.to_string(), ..reply }
    }
}

/// A retry is told that it is one, and nothing else.
pub(super) struct ConflictWhenDone;

impl Habits for ConflictWhenDone {
    fn replay(&self, _: Reply) -> Reply {
        Reply::plain(409, "this was already done")
    }
}
