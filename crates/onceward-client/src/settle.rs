//! Settles an intent whose outcome is unknown: an operator has checked the server and says whether it happened.

use bytes::Bytes;
use http::Response;
use onceward::receipt::{Receipt, Status};
use onceward::{Changed, Id, Outcome};

use super::client::Client;
use super::error::{Error, ErrorKind, Result};
use super::journal::Journal;
use super::journaled::bad_name;

/// The settlement of an intent whose outcome was unknown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SettleIntent {
    /// It happened. Every later call with that name gets this answer.
    Done(Response<Bytes>),
    /// It did not happen. The next call with that name is sent, as a new intent with a new key.
    NotDone,
}

/// Every round but the last means that the receipt was changed meanwhile.
const ROUNDS_MAX: usize = 100;

impl Client {
    /// Settles an intent whose outcome is unknown. Check the service first: the settlement is not verified.
    ///
    /// Only an unknown intent can be settled. An open one is sent again or
    /// [resumed](Client::resume) instead; anything else is
    /// [`ErrorKind::NotUnknown`]. Settling the same way again changes nothing. **Dropping** the future
    /// leaves the intent settled or not; settle it again to be sure.
    pub async fn settle(&self, intent: &str, settlement: SettleIntent) -> Result<()> {
        let journal = self.journal().await?;
        let id = journal.id(intent).map_err(bad_name)?;
        let outcome = match settlement {
            SettleIntent::Done(response) => Some(journal.outcome(&response)),
            SettleIntent::NotDone => None,
        };
        for _ in 0..ROUNDS_MAX {
            if let Settled::Yes = settle(journal, &id, outcome.as_ref()).await? {
                self.inner.shared.counters.settled.one();
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::InProgress, format!("the intent `{intent}` keeps changing; try again")))
    }
}

enum Settled {
    Yes,
    /// The receipt has changed since it was read.
    NotYet,
}

/// Makes one attempt to settle; without an outcome, it did not happen.
async fn settle(journal: &Journal, id: &Id, outcome: Option<&Outcome>) -> Result<Settled> {
    let found = journal.onceward.receipt(id).await.map_err(Error::journal)?;
    let Some(found) = found else {
        return Err(nothing_to_settle(id, "the journal has no intent of that name"));
    };
    match (&found.status, outcome) {
        (Status::Unknown(unknown), Some(outcome)) => {
            let settlement = onceward::Settlement::Done(outcome.clone());
            let settled =
                journal.onceward.settle(id, unknown.claim.fence, &settlement, &journal.sending).await;
            Ok(match settled.map_err(Error::journal)? {
                Changed::Applied => Settled::Yes,
                Changed::NotOwner(_) => Settled::NotYet,
            })
        }
        // The engine would retry the same request after a settlement; here the next call with this name is a new intent,
        // with a new key.
        (Status::Unknown(_), None) => {
            Ok(match journal.onceward.forget_unknown(id, &found).await.map_err(Error::journal)? {
                Changed::Applied => Settled::Yes,
                Changed::NotOwner(_) => Settled::NotYet,
            })
        }
        // The same settlement again: the reply to the first one may have been lost.
        (status, Some(outcome)) if status.outcome() == Some(outcome) => Ok(Settled::Yes),
        (Status::Held(_), _) if !found.due.is_over() => Err(nothing_to_settle(id, "it is being sent")),
        (Status::Held(_) | Status::Waiting(_), _) => mark_expired_unknown(journal, id, &found).await,
        (Status::Dead(_), _) => {
            journal.onceward.retry_dead(id).await.map_err(Error::journal)?;
            Ok(Settled::NotYet)
        }
        (Status::Done(_), _) => Err(nothing_to_settle(id, "it has an answer")),
        (Status::Gone(_), _) => Err(nothing_to_settle(id, "the journal has no intent of that name")),
    }
}

/// Marks an intent unknown whose key has expired since the last call: no call has recorded that yet.
async fn mark_expired_unknown(journal: &Journal, id: &Id, found: &Receipt) -> Result<Settled> {
    let input = found.status.job().map(|job| &job.input);
    let stored = Journal::read(id, input).map_err(Error::journal)?;
    if journal.honoured_for(&stored).is_some() {
        return Err(nothing_to_settle(id, "it is open: send it again, or resume it"));
    }
    let mut marked = Ok(());
    let mark = async |lease| {
        marked = journal.mark_unknown(&lease).await;
        Err(onceward::Stopped::unknown("the server may have forgotten the key"))
    };
    let resumed = journal.onceward.resume(id, found, journal.sending.clone(), mark).await;
    resumed.map_err(Error::journal)?;
    marked.map_err(Error::journal)?;
    Ok(Settled::NotYet)
}

fn nothing_to_settle(id: &Id, why: &str) -> Error {
    let detail = format!("there is nothing to settle about the intent `{}`: {why}", id.key());
    Error::new(ErrorKind::NotUnknown, detail).effect_is(onceward::Effect::Maybe)
}
