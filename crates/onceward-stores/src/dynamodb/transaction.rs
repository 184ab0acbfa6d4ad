//! A completion together with writes of the caller's: all in one `TransactWriteItems`, or none of them.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason, TransactWriteItem};
use onceward::{
    Applied, Attempt, Error, ErrorKind, Join, Onceward, Outcome, Receipt, Result, Seen, State, StoreFuture,
    Swap, Swapped, Ticket, Version,
};
use xxhash_rust::xxh3::xxh3_128;

use super::errors::{CallEffect, failed};
use super::item::{self, There};
use super::store::{DynamoDbStore, RECORD_BYTES_MAX, item_or_absent, too_large};
use super::write;

/// The most writes that a completion takes along: DynamoDB takes 100 in one transaction.
pub const WRITES_MAX: usize = 99;
/// A call whose answer was lost is sent once more, under the same token: DynamoDB then does nothing twice.
const SENDS_MAX: usize = 2;

/// The result of a completion with writes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CompletedWith {
    /// The writes are there, and the outcome is recorded.
    Applied,
    /// The receipt is not this ticket's any more; this is what is there. Nothing was written.
    NotOwner(Option<Receipt>),
    /// DynamoDB refused some of the caller's writes. Nothing was written, and the claim is as it was.
    Refused(Vec<RefusedWrite>),
}

/// A write of the caller's that DynamoDB refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RefusedWrite {
    /// Its place among the writes.
    pub place: usize,
    /// Why, as DynamoDB calls it: `ConditionalCheckFailed`, `ValidationError`, ….
    pub code: String,
    /// The same in words, if DynamoDB says more.
    pub message: Option<String>,
    /// What is there, if the write asked for it (`ReturnValuesOnConditionCheckFailure`).
    pub found: Option<HashMap<String, AttributeValue>>,
}

impl DynamoDbStore {
    /// Records the outcome of a claim together with up to [`WRITES_MAX`] writes to tables of the same account and region:
    /// all of it happens, or nothing. `onceward` is an engine on this store.
    ///
    /// The completion names the version of the claim. If another owner has taken the claim over, nothing is written, so
    /// a claim whose effects are all in `writes` may be made under [`OnUnknown::Retry`](onceward::OnUnknown::Retry).
    ///
    /// * No write may be to the receipt's own item, and no two to one item.
    /// * An error says whether it may have been applied. Calling it again with the same outcome is safe either way: it
    ///   changes nothing if the outcome is recorded.
    /// * A failure that its policy has tried again is not an outcome and takes no writes along; release the claim.
    /// * **Dropping** the future leaves it open whether it was applied; call it again.
    pub async fn complete_with(
        &self,
        onceward: &Onceward,
        ticket: &Ticket,
        outcome: &Outcome,
        writes: Vec<TransactWriteItem>,
    ) -> Result<CompletedWith> {
        if writes.len() > WRITES_MAX {
            let detail =
                format!("{} writes are too many for one transaction; at most {WRITES_MAX} fit", writes.len());
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        // Made of its parts: the version may have moved since it was issued, with every renewal.
        let known =
            Ticket::new(ticket.id().clone(), ticket.attempt(), ticket.fence(), ticket.policy().clone());
        let mut completion =
            Completion { store: self, attempt: ticket.attempt(), writes, refused: Vec::new() };
        match onceward.complete_in(&mut completion, &known, outcome).await {
            Ok(()) => Ok(CompletedWith::Applied),
            Err(_) if !completion.refused.is_empty() => Ok(CompletedWith::Refused(completion.refused)),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let there = onceward.receipt(ticket.id()).await?;
                let is_recorded = there.as_ref().is_some_and(|there| {
                    there.status.outcome() == Some(outcome)
                        && there.status.claim().is_some_and(|claim| {
                            claim.attempt == ticket.attempt() && claim.fence == ticket.fence()
                        })
                });
                Ok(if is_recorded { CompletedWith::Applied } else { CompletedWith::NotOwner(there) })
            }
            Err(error) => Err(error),
        }
    }
}

/// The transaction, as the engine sees it: the one swap that it is given is sent with the writes.
struct Completion<'a> {
    store: &'a DynamoDbStore,
    attempt: Attempt,
    writes: Vec<TransactWriteItem>,
    /// Which of the writes were refused.
    refused: Vec<RefusedWrite>,
}

impl Join for Completion<'_> {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(batch.len());
            for swap in batch {
                answers.push(match (swap.seen, &swap.new) {
                    // A look.
                    (Seen::Absent, None) => self.store.swap_one(swap).await,
                    (Seen::Version(seen), Some(record)) if record.state == State::Done => {
                        if record.bytes.len() > RECORD_BYTES_MAX {
                            return Err(too_large(record.bytes.len()));
                        }
                        self.send(swap, seen).await?
                    }
                    _ => {
                        let detail = "a failure that is tried again is not recorded, and takes no writes along; release the claim instead";
                        return Err(Error::new(ErrorKind::Invalid, detail));
                    }
                });
            }
            Ok(answers)
        })
    }
}

impl Completion<'_> {
    async fn send(&mut self, swap: &Swap, seen: Version) -> Result<Swapped> {
        let stamp = self.store.clock.stamp();
        let version = stamp.now_us.max(seen.0.saturating_add(1));
        let ours = write::update(&self.store.table, swap, version, stamp.now_us);
        let mut items = self.writes.clone();
        items.push(TransactWriteItem::builder().update(ours).build());
        // Of the attempt and of everything that is written.
        let token = xxh3_128(format!("{:032x} {version} {items:?}", self.attempt.0).as_bytes());
        let mut lost: Option<Error> = None;
        for _ in 0..SENDS_MAX {
            let sent = self
                .store
                .client
                .transact_write_items()
                .set_transact_items(Some(items.clone()))
                .client_request_token(format!("{token:032x}"))
                .send()
                .await;
            let Err(error) = sent else {
                let record = swap.new.as_ref().expect("a completion has a record");
                return Ok(self.store.settle(&swap.id, Version(version), record, stamp).await);
            };
            let error = match reasons(&error) {
                Some(reasons) => match self.cancelled(swap, reasons, items.len()) {
                    Ok(swapped) => return Ok(swapped),
                    Err(error) => error,
                },
                None => failed(&self.store.table, CallEffect::Writes, &error),
            };
            if error.applied() == Applied::No {
                // If the answer before this one was lost, its transaction may have been applied.
                return Err(if lost.is_some() && self.refused.is_empty() {
                    error.maybe_applied()
                } else {
                    error
                });
            }
            lost = Some(error);
        }
        Err(lost.expect("a call that is sent again was not answered"))
    }

    /// Why the transaction was cancelled. Nothing of it was done.
    fn cancelled(&mut self, swap: &Swap, reasons: &[CancellationReason], items: usize) -> Result<Swapped> {
        let table = &self.store.table;
        let error = |kind, why: &str| Err(Error::new(kind, format!("DynamoDB table `{table}`: {why}")));
        let code = |reason: &CancellationReason| reason.code().unwrap_or("None").to_owned();
        let Some((ours, theirs)) = reasons.split_last().filter(|_| reasons.len() == items) else {
            return error(ErrorKind::Unavailable, "a transaction was cancelled without a reason; try again");
        };
        if code(ours) == "ConditionalCheckFailed" {
            let there = item_or_absent(ours.item.clone());
            let found = match item::there(&swap.id, Some(&there), self.store.clock.now_us())? {
                There::Record(found) => Some(*found),
                There::Nothing | There::Removed(_) => None,
            };
            return Ok(Swapped::Lost(found));
        }
        let refused = theirs.iter().enumerate().filter(|(_, reason)| !is_passing(&code(reason)));
        self.refused = refused
            .map(|(place, reason)| RefusedWrite {
                place,
                code: code(reason),
                message: reason.message.clone(),
                found: reason.item.clone(),
            })
            .collect();
        let codes: Vec<String> = reasons.iter().map(code).collect();
        if !self.refused.is_empty() {
            error(ErrorKind::Conflict, "another write of the transaction was refused")
        } else if codes.iter().any(|code| code == "TransactionConflict") {
            error(ErrorKind::Unavailable, "another transaction is changing one of the items; try again")
        } else if codes.iter().any(|code| is_passing(code) && code != "None") {
            error(
                ErrorKind::Unavailable,
                "it is asked more often than its capacity allows; raise that, or try again",
            )
        } else {
            let why = ours.message().unwrap_or_default();
            error(ErrorKind::Invalid, &format!("the completion was refused ({}): {why}", code(ours)))
        }
    }
}

/// Whether a reason is gone after a while, or none at all.
fn is_passing(code: &str) -> bool {
    [
        "None",
        "TransactionConflict",
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "RequestLimitExceeded",
    ]
    .contains(&code)
}

fn reasons<R>(error: &SdkError<TransactWriteItemsError, R>) -> Option<&[CancellationReason]> {
    match error.as_service_error()? {
        TransactWriteItemsError::TransactionCanceledException(cancelled) => {
            Some(cancelled.cancellation_reasons())
        }
        _ => None,
    }
}
