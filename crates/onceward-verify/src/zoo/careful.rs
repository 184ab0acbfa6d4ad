//! A correct idempotent service in memory, divided into steps. A service of the zoo overrides the one step that it gets wrong.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::charges::Charges;
use super::events::Events;
use super::limits::Versions;
use super::server::{Answering, Ask, Reply, Service};

/// How often one who waits looks again.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What becomes of a key whose work failed.
pub(super) enum AfterFailure {
    /// It can be tried again.
    Free,
    /// The failure is the answer.
    Keep,
    /// Nobody thinks of it.
    Forget,
}

/// The steps, each done right unless it is overridden.
pub(super) trait Habits: Send + Sync + 'static {
    /// Reads the key: one line, quoted or not, 1 to 255 printable characters.
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        strict_key(lines).ok_or_else(|| Reply::plain(400, "a key is required, and only one"))
    }

    /// Whose key it is, and what for.
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {key}", ask.tenant, ask.path)
    }

    /// What was asked: JSON by value.
    fn fingerprint(&self, ask: &Ask) -> String {
        serde_json::from_slice::<Value>(&ask.body)
            .map_or_else(|_| format!("{:?}", ask.body), |json| json.to_string())
    }

    /// Whether a duplicate is compared with one that is still running.
    fn compares_while_running(&self) -> bool {
        true
    }

    /// Whether a duplicate waits for the first, or is told to come again.
    fn waits(&self) -> bool {
        true
    }

    /// What a duplicate is told that does not wait.
    fn come_again(&self) -> Reply {
        Reply::in_progress()
    }

    /// What another request under a known key is told.
    fn reused(&self) -> Reply {
        Reply::key_reused()
    }

    /// How long after its answer a key is still locked.
    fn stays_locked_for(&self) -> Duration {
        Duration::ZERO
    }

    /// What a retry past the retention is told, where it does not run again.
    fn expired(&self) -> Option<Reply> {
        None
    }

    /// What a retry gets.
    fn replay(&self, reply: Reply) -> Reply {
        reply
    }

    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Free
    }

    /// Whether a failure after the effect frees the key like one before it.
    fn frees_after_effect(&self) -> bool {
        false
    }

    /// Whether a failure after the effect leaves the claim behind.
    fn keeps_claim_after_effect(&self) -> bool {
        false
    }

    /// How changes of a version are guarded.
    fn versions(&self) -> Versions {
        Versions::Right
    }

    /// By what events are known again.
    fn events(&self) -> Events {
        Events::Right
    }

    /// Whether a receipt past its retention is claimed again in one step.
    fn claims_expired(&self) -> bool {
        true
    }

    /// How many answers are kept.
    fn answers_max(&self) -> usize {
        usize::MAX
    }

    /// How long an answer is kept.
    fn retention(&self) -> Duration {
        Duration::from_secs(3_600)
    }
}

/// One line, quoted or not, 1 to 255 printable ASCII characters.
pub(super) fn strict_key(lines: &[Vec<u8>]) -> Option<String> {
    let [line] = lines else { return None };
    let text = std::str::from_utf8(line).ok()?;
    let key = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => text,
    };
    let sound = key.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b',');
    (sound && (1..=255).contains(&key.len())).then(|| key.to_owned())
}

/// What is known of an id.
enum Known {
    Held { fingerprint: String },
    Done { fingerprint: String, reply: Reply, since: Instant },
}

/// What came of a claim.
enum Claimed {
    Mine,
    Answer(Reply),
    NotYet,
}

/// A service with these habits.
pub(super) struct Careful<H> {
    habits: H,
    known: Mutex<HashMap<String, Known>>,
}

impl<H: Habits> Careful<H> {
    pub(super) fn new(habits: H) -> Self {
        Self { habits, known: Mutex::default() }
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let key = match self.habits.key(&ask.key_lines) {
            Ok(key) => key,
            Err(refusal) => return refusal,
        };
        let id = self.habits.id(&ask, &key);
        let fingerprint = self.habits.fingerprint(&ask);
        let mut waited = false;
        loop {
            match self.claim(&id, &fingerprint, waited) {
                Claimed::Mine => break,
                Claimed::Answer(reply) => return reply,
                Claimed::NotYet => tokio::time::sleep(LOOK_EVERY).await,
            }
            waited = true;
        }
        let reply = charges.charge(&ask).await;
        if ask.fails_after.is_some() && self.habits.keeps_claim_after_effect() {
            return reply;
        }
        let frees = ask.fails_after.is_none() || self.habits.frees_after_effect();
        self.complete(id, fingerprint, &reply, frees);
        reply
    }

    /// Claims the id, in one step with looking for it.
    fn claim(&self, id: &str, fingerprint: &str, waited: bool) -> Claimed {
        let mut known = self.known.lock().expect("nobody panics with it in hand");
        let habits = &self.habits;
        let compares = !waited || habits.compares_while_running();
        match known.get(id) {
            Some(Known::Done { since, .. }) if since.elapsed() < habits.stays_locked_for() => {
                return Claimed::Answer(habits.come_again());
            }
            Some(Known::Done { since, .. })
                if since.elapsed() > habits.retention() && habits.expired().is_some() =>
            {
                return Claimed::Answer(habits.expired().expect("it was just looked at"));
            }
            Some(Known::Done { since, .. })
                if since.elapsed() > habits.retention() && !habits.claims_expired() =>
            {
                return Claimed::Mine;
            }
            Some(Known::Done { since, .. }) if since.elapsed() > habits.retention() => {}
            Some(Known::Done { fingerprint: other, .. }) if compares && other != fingerprint => {
                return Claimed::Answer(habits.reused());
            }
            Some(Known::Done { reply, .. }) => return Claimed::Answer(habits.replay(reply.clone())),
            Some(Known::Held { fingerprint: other })
                if habits.compares_while_running() && other != fingerprint =>
            {
                return Claimed::Answer(habits.reused());
            }
            Some(Known::Held { .. }) if !habits.waits() => return Claimed::Answer(habits.come_again()),
            Some(Known::Held { .. }) => return Claimed::NotYet,
            None => {}
        }
        known.insert(id.to_owned(), Known::Held { fingerprint: fingerprint.to_owned() });
        Claimed::Mine
    }

    /// Records the end of the work; `frees` if a failure may free the key.
    fn complete(&self, id: String, fingerprint: String, reply: &Reply, frees: bool) {
        let mut known = self.known.lock().expect("nobody panics with it in hand");
        let done = Known::Done { fingerprint, reply: reply.clone(), since: Instant::now() };
        match self.habits.after_failure() {
            AfterFailure::Free if reply.status >= 500 && frees => known.remove(&id),
            AfterFailure::Forget if reply.status >= 500 => None,
            _ => known.insert(id, done),
        };
        while known.len() > self.habits.answers_max() {
            let age = |known: &Known| match known {
                Known::Done { since, .. } => Some(*since),
                Known::Held { .. } => None,
            };
            let oldest = known.iter().filter_map(|(id, known)| Some((age(known)?, id.clone()))).min();
            match oldest {
                Some((_, id)) => known.remove(&id),
                None => break,
            };
        }
    }
}

impl<H: Habits> Service for Careful<H> {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }

    fn versions(&self) -> Versions {
        self.habits.versions()
    }

    fn events(&self) -> Events {
        self.habits.events()
    }
}
