//! Correct services in different styles: the verifier must pass each of them.

use std::collections::HashMap;

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
