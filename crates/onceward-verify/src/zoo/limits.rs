//! A resource with a version, for changes with `If-Match`.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::server::Reply;

/// How a service guards its versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// In one step with the change, after the key.
    #[default]
    Right,
    /// It compares, and then writes.
    CheckThenWrite,
    /// It compares before it looks for the key, so that the retry of a change that was done is refused.
    BeforeTheKey,
    /// It compares, then works, and then writes. Work that takes no time is one step with the two.
    BeforeSlowWork,
    /// In one step with the change, and a change of another version is told 409.
    RefusedWith409,
}

/// The resource.
#[derive(Debug, Default)]
pub(super) struct Limits {
    state: Mutex<(u64, HashMap<Vec<u8>, Reply>)>,
}

/// A round trip to the database.
const ROUND_TRIP: Duration = Duration::from_millis(5);

impl Limits {
    pub(super) fn read(&self) -> Reply {
        let version = self.state.lock().expect("nobody panics with it in hand").0;
        Self::reply(version)
    }

    /// Changes it after this much work, if this is still its version.
    pub(super) async fn change(&self, how: Versions, key: Vec<u8>, matches: &str, work: Duration) -> Reply {
        let is_current = || self.read().fields[0].1 == matches;
        let other_version = match how {
            Versions::RefusedWith409 => Reply::plain(409, "another version"),
            _ => Reply::plain(412, "another version"),
        };
        if how == Versions::BeforeTheKey && !is_current() {
            return other_version;
        }
        if let Some(reply) = self.known(&key) {
            return reply;
        }
        let compares_first = match how {
            Versions::CheckThenWrite => true,
            Versions::BeforeSlowWork => !work.is_zero(),
            Versions::Right | Versions::BeforeTheKey | Versions::RefusedWith409 => false,
        };
        if compares_first && !is_current() {
            return other_version;
        }
        tokio::time::sleep(work).await;
        if how == Versions::CheckThenWrite {
            tokio::time::sleep(ROUND_TRIP).await;
        }
        self.write(key, (!compares_first).then_some(matches)).unwrap_or(other_version)
    }

    fn known(&self, key: &[u8]) -> Option<Reply> {
        self.state.lock().expect("nobody panics with it in hand").1.get(key).cloned()
    }

    /// Writes, in one step with the comparison, if there is still one to be made; none where it is another version.
    fn write(&self, key: Vec<u8>, matches: Option<&str>) -> Option<Reply> {
        let mut state = self.state.lock().expect("nobody panics with it in hand");
        if let Some(reply) = state.1.get(&key) {
            return Some(reply.clone());
        }
        if matches.is_some_and(|matches| Self::reply(state.0).fields[0].1 != matches) {
            return None;
        }
        state.0 += 1;
        let reply = Self::reply(state.0);
        state.1.insert(key, reply.clone());
        Some(reply)
    }

    fn reply(version: u64) -> Reply {
        Reply {
            fields: vec![("etag", format!("\"{version}\""))],
            ..Reply::plain(200, &format!("limit {version}"))
        }
    }
}
