//! Two different requests under one intent's name at the same moment, and whose the name is.
//!
//! **The request that lies in the journal is the intent's.** Who holds the claim and finds another one's
//! request in place lets go without having sent anything, so the two cannot both be sent. The other way
//! round, a request can come to lie there although its claim was lost by a moment (`riding.rs`). Its
//! caller must then not be told that nothing is sent, because a resumption would send it; so:
//!
//! | the receipt, of the other request | what lies there |
//! |---|---|
//! | held | goes on, once the other one has let go; a lease that is over is let go for it |
//! | done, unknown | is taken away first, and refused then |
//! | none any more | goes on |

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::Status;
use onceward::{Applied, Ask, Fingerprint, Id, Refusal, Result, Stopped, Swapped, Version};

use super::attend::From;
use super::journal::Journal;
use super::open::{Open, Putting};
use super::take_up::Withdrawn;

/// What follows from an answer that came without any work of our own.
pub(crate) enum After {
    /// It is to be asked again.
    Again,
    /// It stands, or this does in its place.
    Ran(onceward::Result<onceward::Answer>),
}

/// What becomes of a request that was refused because of another one, and lies in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contested {
    /// The name is its own: ask again.
    Won,
    /// The name is the other one's; nothing of this one is left.
    Lost,
    /// Somebody is busy with the other one at the moment.
    Open,
}

/// Whether to wait for somebody who is busy with the other request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contesting {
    /// A caller does.
    Waits,
    /// A resumption does not.
    Passes,
}

impl Journal {
    /// Sees to a request that lies in the journal although its claim was not won.
    pub(crate) async fn after(
        self: &Arc<Self>,
        id: &Id,
        fingerprint: Fingerprint,
        ran: onceward::Result<onceward::Answer>,
        from: &mut From,
    ) -> After {
        let reused = match &ran {
            Ok(onceward::Answer::Refused(Refusal::KeyReused)) => true,
            Ok(onceward::Answer::Ran(ran)) if ran.replayed => false,
            _ => return After::Ran(ran),
        };
        let (place, contesting) = match from {
            From::Caller(putting) => (self.lies(putting).await, Contesting::Waits),
            From::Journal { seen, .. } => (Ok(Some((seen.id.clone(), seen.version))), Contesting::Passes),
        };
        match place {
            Ok(Some(place)) if reused => match self.contest(id, fingerprint, place, contesting).await {
                Ok(Contested::Won) => After::Again,
                Ok(Contested::Lost) => After::Ran(ran),
                Ok(Contested::Open) => {
                    let refusal = Refusal::InProgress { retry_after: Duration::ZERO };
                    After::Ran(Ok(onceward::Answer::Refused(refusal)))
                }
                Err(error) => After::Ran(Err(error.maybe_applied())),
            },
            // The intent has its answer; nothing is open any more.
            Ok(Some(place)) if contesting == Contesting::Waits => {
                self.done_with(place).await;
                After::Ran(ran)
            }
            Ok(_) => After::Ran(ran),
            Err(error) => After::Ran(Err(error.maybe_applied())),
        }
    }

    /// Where a request has come to lie that rode with a claim; nothing if it did not.
    async fn lies(&self, putting: &mut Putting) -> Result<Option<(Id, Version)>> {
        let id = &putting.swap.id;
        match putting.seat.arrived().map(|arrived| arrived.swapped) {
            Some(Ok(Swapped::Won(version))) => putting.lies = Some((id.clone(), version)),
            Some(Err(error)) if error.applied() == Applied::Maybe => {
                let found = self.load(id).await?;
                let open = found.map(|found| Open::decode(id.clone(), &found)).transpose()?;
                // Also where somebody has taken it up meanwhile.
                let same = open.filter(|open| open.fingerprint() == putting.claim.fingerprint);
                putting.lies = same.map(|same| (same.id, same.version));
            }
            _ => {}
        }
        Ok(putting.lies.clone())
    }

    /// Finds out whose the name is. `place` is where the refused request lies.
    async fn contest(
        &self,
        id: &Id,
        fingerprint: Fingerprint,
        (lies_at, mut version): (Id, Version),
        contesting: Contesting,
    ) -> Result<Contested> {
        loop {
            let Some(receipt) = self.onceward.show(id).await? else { return Ok(Contested::Won) };
            match &receipt.status {
                status if status.claim().is_none_or(|claim| claim.fingerprint == fingerprint) => {
                    return Ok(Contested::Won);
                }
                Status::Held(held) => {
                    if contesting == Contesting::Passes && !receipt.due.is_over() {
                        return Ok(Contested::Open);
                    }
                    if self.let_go(id, held.claim.fingerprint).await? == Contested::Open {
                        return Ok(Contested::Open);
                    }
                }
                // Past its retention it binds nobody.
                Status::Done(_) if receipt.due.is_over() => return Ok(Contested::Won),
                _ => match self.withdraw((lies_at.clone(), version), fingerprint).await? {
                    Withdrawn::Gone => return Ok(Contested::Lost),
                    Withdrawn::Lies(now) => version = now,
                },
            }
        }
    }

    /// Waits until nobody is busy with the request of this fingerprint any more. What its owner left when
    /// it died is let go for it: another request lies where it would have had to write its own first
    /// (`take_up.rs`), so it was never sent.
    async fn let_go(&self, id: &Id, other: Fingerprint) -> Result<Contested> {
        let ask = Ask::new(id.clone(), other, self.sending.clone());
        let nothing = async |_| Err(Stopped::before_effect("another request lies in the journal"));
        match self.onceward.run(ask, nothing).await {
            Ok(onceward::Answer::Refused(Refusal::InProgress { .. })) => Ok(Contested::Open),
            Err(error) if error.kind() != onceward::ErrorKind::Stopped => Err(error),
            _ => Ok(Contested::Won),
        }
    }
}
