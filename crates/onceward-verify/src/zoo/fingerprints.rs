//! Services that compare requests wrongly.

use super::careful::Habits;
use super::server::Ask;

/// Nobody compares bodies.
pub(super) struct Ignored;

impl Habits for Ignored {
    fn fingerprint(&self, _: &Ask) -> String {
        String::new()
    }
}

/// Bodies are compared with what is done. One that comes while the first is running waits for its answer, and
/// takes it as its own.
pub(super) struct OnlyWhenDone;

impl Habits for OnlyWhenDone {
    fn compares_while_running(&self) -> bool {
        false
    }
}

/// The body is a part of what is looked up, so another body is another request.
pub(super) struct PartOfTheKey;

impl Habits for PartOfTheKey {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {key} {:?}", ask.tenant, ask.path, ask.body)
    }
}

/// Only the length is compared: somebody took `Content-Length` for a fingerprint.
pub(super) struct LengthOnly;

impl Habits for LengthOnly {
    fn fingerprint(&self, ask: &Ask) -> String {
        ask.body.len().to_string()
    }
}
