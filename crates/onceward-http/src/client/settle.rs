//! Ending a doubt: somebody has looked at the server and says what became of an intent that is unknown.

use bytes::Bytes;
use http::Response;
use onceward::receipt::Status;
use onceward::{Changed, Id, Receipt};

use super::attend::bad_name;
use super::client::Client;
use super::error::{Error, ErrorKind, Result};
use super::journal::Journal;
use super::take_up::Withdrawn;

/// What somebody found out about an intent whose outcome is unknown.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// It happened, and every later call of that name gets this answer.
    Done(Response<Bytes>),
    /// It did not happen: the next call of that name is sent, as a new intent with a new key.
    NotDone,
}

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
        let settlement = match settlement {
            Settlement::Done(response) => onceward::Settlement::Done(journal.outcome(&response)),
            Settlement::NotDone => onceward::Settlement::NotDone,
        };
        while let Settled::NotYet = settle(journal, &id, intent, &settlement).await? {}
        self.inner.shared.counters.settled.one();
        Ok(())
    }
}

enum Settled {
    Yes,
    /// Somebody has changed the request meanwhile.
    NotYet,
}

async fn settle(
    journal: &Journal,
    id: &Id,
    intent: &str,
    settlement: &onceward::Settlement,
) -> Result<Settled> {
    // The request first, the receipt then: see `take_up.rs`.
    let open = journal.request(id).await.map_err(Error::journal)?;
    if let Some(open) = &open
        && journal.honoured_for(open).is_none()
    {
        // Nobody has asked since the server's word ran out, so nobody has written the doubt down yet.
        journal.doubt(id, open).await.map_err(Error::journal)?;
    }
    let found = journal.onceward.show(id).await.map_err(Error::journal)?;
    let claim = match found.as_ref().map(|receipt| &receipt.status) {
        Some(Status::Unknown(unknown)) => unknown.claim,
        // The same again, whose first answer was lost.
        _ if is_so(found.as_ref(), settlement) => return Ok(Settled::Yes),
        Some(Status::Done(_)) => return Err(not_in_doubt(intent, "it has an answer")),
        Some(Status::Held(_)) => return Err(not_in_doubt(intent, "it is being sent")),
        _ if open.is_some() => {
            return Err(not_in_doubt(intent, "it is open: send it again, or resume it"));
        }
        _ => return Err(not_in_doubt(intent, "the journal has no intent of that name")),
    };
    // Before the doubt ends: while there is one, nobody sends. Behind it, the next call of the name would
    // find the old request, send that one, and lose it to us. Dying in between leaves a doubt that can be
    // settled again.
    if let Some(open) = open.filter(|open| open.fingerprint() == claim.fingerprint) {
        let withdrawn = journal.withdraw((open.id, open.version), claim.fingerprint).await;
        if let Withdrawn::Lies(_) = withdrawn.map_err(Error::journal)? {
            return Ok(Settled::NotYet);
        }
    }
    let settled = journal.onceward.settle(id, claim.fence, settlement, &journal.sending).await;
    match settled.map_err(Error::journal)? {
        Changed::No(now) if !is_so(now.as_ref(), settlement) => {
            Err(not_in_doubt(intent, "somebody else has settled it meanwhile"))
        }
        _ => Ok(Settled::Yes),
    }
}

fn is_so(receipt: Option<&Receipt>, settlement: &onceward::Settlement) -> bool {
    match (receipt.map(|receipt| &receipt.status), settlement) {
        (Some(Status::Done(done)), onceward::Settlement::Done(outcome)) => done.outcome == *outcome,
        _ => false,
    }
}

fn not_in_doubt(intent: &str, why: &str) -> Error {
    let detail = format!("there is nothing to settle about the intent `{intent}`: {why}");
    Error::new(ErrorKind::NotInDoubt, detail).effect_is(onceward::Effect::Maybe)
}
