//! Ending a doubt: somebody has looked at the server and says what became of an intent that is unknown.

use bytes::Bytes;
use http::Response;
use onceward::receipt::{Receipt, Status};
use onceward::{Changed, Id, Outcome};

use super::client::Client;
use super::error::{Error, ErrorKind, Result};
use super::journal::{Freed, Journal};
use super::journaled::bad_name;

/// What somebody found out about an intent whose outcome is unknown.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// It happened, and every later call of that name gets this answer.
    Done(Response<Bytes>),
    /// It did not happen: the next call of that name is sent, as a new intent with a new key.
    NotDone,
}

/// Each round but the last means that somebody has changed the intent meanwhile.
const ROUNDS_MAX: usize = 100;

impl Client {
    /// Ends the doubt about an intent that is unknown. Look into the service first: this is believed.
    ///
    /// Only what is unknown can be settled; what is still open is sent again or
    /// [resumed](Client::resume) instead, and anything else is
    /// [`ErrorKind::NotInDoubt`]. Settling the same way again changes nothing. **Dropping** the future
    /// leaves the intent settled or not; settle it again to be sure.
    pub async fn settle(&self, intent: &str, settlement: Settlement) -> Result<()> {
        let journal = self.journal().await?;
        let id = journal.id(intent).map_err(bad_name)?;
        let outcome = match settlement {
            Settlement::Done(response) => Some(journal.outcome(&response)),
            Settlement::NotDone => None,
        };
        for _ in 0..ROUNDS_MAX {
            if let Settled::Yes = settle(journal, &id, outcome.as_ref()).await? {
                self.inner.shared.counters.settled.one();
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::InProgress, format!("the intent `{intent}` is changing all the time")))
    }
}

enum Settled {
    Yes,
    /// It has another receipt than the one that was looked at.
    NotYet,
}

/// Settles what is there now; without an outcome, it did not happen.
async fn settle(journal: &Journal, id: &Id, outcome: Option<&Outcome>) -> Result<Settled> {
    let found = journal.onceward.receipt(id).await.map_err(Error::journal)?;
    let Some(found) = found else {
        return Err(not_in_doubt(id, "the journal has no intent of that name"));
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
        (Status::Unknown(_), None) => {
            Ok(match journal.free(id, found.version).await.map_err(Error::journal)? {
                Freed::Yes => Settled::Yes,
                Freed::Changed => Settled::NotYet,
            })
        }
        // The same again, whose first answer was lost.
        (status, Some(outcome)) if status.outcome() == Some(outcome) => Ok(Settled::Yes),
        (Status::Held(_), _) if !found.due.is_over() => Err(not_in_doubt(id, "it is being sent")),
        (Status::Held(_) | Status::Waiting(_), _) => doubt_expired(journal, id, &found).await,
        (Status::Dead(_), _) => {
            journal.onceward.retry_dead(id).await.map_err(Error::journal)?;
            Ok(Settled::NotYet)
        }
        (Status::Done(_), _) => Err(not_in_doubt(id, "it has an answer")),
        (Status::Gone(_), _) => Err(not_in_doubt(id, "the journal has no intent of that name")),
    }
}

/// Nobody has asked since the server's word ran out, so nobody has written the doubt down yet: it is done now.
async fn doubt_expired(journal: &Journal, id: &Id, found: &Receipt) -> Result<Settled> {
    let input = found.status.job().map(|job| &job.input);
    let stored = Journal::read(id, input).map_err(Error::journal)?;
    if journal.honoured_for(&stored).is_some() {
        return Err(not_in_doubt(id, "it is open: send it again, or resume it"));
    }
    let mut doubted = Ok(());
    let doubt = async |lease| {
        doubted = journal.doubt(&lease).await;
        Err(onceward::Stopped::unknown("the server may have forgotten the key"))
    };
    let resumed = journal.onceward.resume(id, found, journal.sending.clone(), doubt).await;
    resumed.map_err(Error::journal)?;
    doubted.map_err(Error::journal)?;
    Ok(Settled::NotYet)
}

fn not_in_doubt(id: &Id, why: &str) -> Error {
    let detail = format!("there is nothing to settle about the intent `{}`: {why}", id.key());
    Error::new(ErrorKind::NotInDoubt, detail).effect_is(onceward::Effect::Maybe)
}
