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

    /// Changes it, if this is still its version.
    pub(super) async fn change(&self, how: Versions, key: Vec<u8>, matches: &str) -> Reply {
        if how == Versions::CheckThenWrite {
            let current = self.read();
            if let Some(reply) = self.known(&key) {
                return reply;
            }
            if current.fields[0].1 != matches {
                return Reply::plain(412, "another version");
            }
            tokio::time::sleep(ROUND_TRIP).await;
            return self.write(key);
        }
        let mut state = self.state.lock().expect("nobody panics with it in hand");
        let is_current = Self::reply(state.0).fields[0].1 == matches;
        match state.1.get(&key) {
            Some(_) if how == Versions::BeforeTheKey && !is_current => Reply::plain(412, "another version"),
            Some(reply) => reply.clone(),
            None if !is_current => Reply::plain(412, "another version"),
            None => {
                state.0 += 1;
                let reply = Self::reply(state.0);
                state.1.insert(key, reply.clone());
                reply
            }
        }
    }

    fn known(&self, key: &[u8]) -> Option<Reply> {
        self.state.lock().expect("nobody panics with it in hand").1.get(key).cloned()
    }

    fn write(&self, key: Vec<u8>) -> Reply {
        let mut state = self.state.lock().expect("nobody panics with it in hand");
        state.0 += 1;
        let reply = Self::reply(state.0);
        state.1.insert(key, reply.clone());
        reply
    }

    fn reply(version: u64) -> Reply {
        Reply {
            fields: vec![("etag", format!("\"{version}\""))],
            ..Reply::plain(200, &format!("limit {version}"))
        }
    }
}
