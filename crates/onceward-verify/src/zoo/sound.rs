//! Correct services in different styles: the verifier must pass each of them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};

use super::careful::{AfterFailure, Habits, strict_key};
use super::charges::Charges;
use super::server::{Answering, Ask, Reply, Service};

/// In memory; a duplicate waits.
pub(super) struct Waiting;

impl Habits for Waiting {}

/// In memory; a duplicate is told to come again.
pub(super) struct Conflicting;

impl Habits for Conflicting {
    fn waits(&self) -> bool {
        false
    }
}

/// In memory; a duplicate is told 423 Locked.
pub(super) struct Locking;

impl Habits for Locking {
    fn waits(&self) -> bool {
        false
    }

    fn come_again(&self) -> Reply {
        Reply { status: 423, ..Reply::in_progress() }
    }
}

/// In memory; a duplicate is told that the first one is being worked on, with a 202.
pub(super) struct Accepting;

impl Habits for Accepting {
    fn waits(&self) -> bool {
        false
    }

    fn come_again(&self) -> Reply {
        Reply { status: 202, ..Reply::in_progress() }
    }
}

/// As Stripe does it: keys are any text, whatever was answered is final, and bodies are compared by bytes.
pub(super) struct Final;

impl Habits for Final {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        match lines {
            [line] if !line.is_empty() && line != b"\"\"" && line.len() < 256 => {
                Ok(String::from_utf8_lossy(line).into_owned())
            }
            _ => Err(Reply::plain(400, "a key is required, and only one")),
        }
    }

    fn fingerprint(&self, ask: &Ask) -> String {
        format!("{:?}", ask.body)
    }

    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Keep
    }
}

/// In memory; keys are taken without quotes only.
pub(super) struct RawOnly;

impl Habits for RawOnly {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        let is_quoted = lines.iter().any(|line| line.contains(&b'"'));
        strict_key(lines)
            .filter(|_| !is_quoted)
            .ok_or_else(|| Reply::plain(400, "a key without quotes is required"))
    }
}

/// Any text is a key, as it came: quotes belong to it. Several lines are one key.
pub(super) struct AnyText;

impl Habits for AnyText {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        Ok(format!("{:?}", lines.join(&b", "[..])))
    }
}

/// In memory; a key that was used for anything else is refused with 409, as many services do it.
pub(super) struct RefusingWith409;

impl Habits for RefusingWith409 {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {key}", ask.tenant)
    }

    fn fingerprint(&self, ask: &Ask) -> String {
        format!("{} {:?}", ask.path, ask.body)
    }

    fn reused(&self) -> Reply {
        Reply::plain(409, "this key was used for another request")
    }
}

/// In memory; a key past its retention is refused with 409.
pub(super) struct RefusingExpired;

impl Habits for RefusingExpired {
    fn retention(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn expired(&self) -> Option<Reply> {
        Some(Reply::plain(409, "this key is too old"))
    }
}

/// In memory; a duplicate is told to come again until the lock is gone, which is a little after the answer.
pub(super) struct UnlockingLate;

impl Habits for UnlockingLate {
    fn waits(&self) -> bool {
        false
    }

    fn stays_locked_for(&self) -> Duration {
        Duration::from_millis(5)
    }
}

/// One cell for each key: the first request fills it, and the others wait for it.
#[derive(Default)]
pub(super) struct Cells(Mutex<HashMap<String, std::sync::Arc<Cell>>>);

#[derive(Default)]
struct Cell {
    body: OnceCell<bytes::Bytes>,
    reply: OnceCell<Reply>,
}

impl Cells {
    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        // The key is optional here.
        if ask.key_lines.is_empty() {
            return charges.charge(&ask).await;
        }
        let Some(key) = strict_key(&ask.key_lines) else { return Reply::plain(400, "this is no key") };
        let id = format!("{} {} {key}", ask.tenant, ask.path);
        let cell = self.0.lock().await.entry(id).or_default().clone();
        if *cell.body.get_or_init(async || ask.body.clone()).await != ask.body {
            return Reply::key_reused();
        }
        let charge = async || match charges.charge(&ask).await {
            reply if reply.status >= 500 && ask.fails_after.is_none() => Err(reply),
            reply => Ok(reply),
        };
        match cell.reply.get_or_try_init(charge).await {
            Ok(reply) => reply.clone(),
            Err(failure) => failure,
        }
    }
}

impl Service for Cells {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}
