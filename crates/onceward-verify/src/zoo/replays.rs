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
        match serde_json::from_str::<serde_json::Value>(&reply.body) {
            Ok(json) => Reply { body: json.to_string(), ..reply },
            Err(_) => reply,
        }
    }
}

/// A retry is told that it is one, and nothing else.
pub(super) struct ConflictWhenDone;

impl Habits for ConflictWhenDone {
    fn replay(&self, _: Reply) -> Reply {
        Reply::plain(409, "this was already done")
    }
}

/// A replay has the first body, with 409 as its status.
pub(super) struct As409;

impl Habits for As409 {
    fn replay(&self, reply: Reply) -> Reply {
        Reply { status: 409, ..reply }
    }
}

/// The same, and a duplicate of what is running gets a 409 of another kind.
pub(super) struct As409WhenDone;

impl Habits for As409WhenDone {
    fn waits(&self) -> bool {
        false
    }

    fn replay(&self, reply: Reply) -> Reply {
        Reply { status: 409, ..reply }
    }
}
