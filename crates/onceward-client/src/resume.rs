//! Finishes the intents that earlier processes left open.

use std::collections::HashSet;

use onceward::receipt::{Receipt, Status};
use onceward::{Filter, Id, ReceiptPage, Refusal, Scan, ScanTarget, State, TextMatch};
use tokio::task::{JoinError, JoinSet};

use super::client::Client;
use super::error::{Error, Result};
use super::journal::{Journal, OPERATION};
use super::journaled::{SendEnd, refused};
use super::server_reply::Reply;

/// An intent that was open, and its result.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resumed {
    /// Its name.
    pub intent: String,
    /// Its answer, or why there is none yet.
    pub result: Result<Reply>,
}

/// Number of intents that are resumed at the same time, so that a restart does not overload the server.
const AT_ONCE: usize = 16;
const PAGE_RECORDS: usize = 256;

/// The states of an intent that has no answer. (A dead one was claimed the maximum number of times without an end.)
const OPEN: [State; 4] = [State::Held, State::Waiting, State::Unknown, State::Dead];

impl Client {
    /// Finishes what earlier processes left open: each open request is sent with its own key and its own bytes, and
    /// its answer is recorded. Returns the result of each.
    ///
    /// An intent that another call is sending is skipped. An intent that cannot be finished now stays open, and an
    /// unknown one stays unknown. Answers past their retention are removed.
    pub async fn resume(&self) -> Result<Vec<Resumed>> {
        let mut all = Vec::new();
        self.resume_each(|resumed| all.push(resumed)).await?;
        Ok(all)
    }

    /// Like [`Client::resume`], but passes each result to `tell` as it arrives: for large journals.
    pub async fn resume_each(&self, mut tell: impl FnMut(Resumed)) -> Result<()> {
        let journal = self.journal().await?;
        let mut resuming = JoinSet::new();
        // Each once: an intent that could not be finished may be listed again, in another state.
        let mut seen = HashSet::new();
        for state in OPEN {
            let mut after = None;
            loop {
                let filter = Filter::default()
                    .with_scope(journal.name.clone())
                    .with_operation(TextMatch::Is(OPERATION.to_owned()))
                    .with_state(state);
                let scan = Scan::new(ScanTarget::Matching(filter), PAGE_RECORDS).with_after(after);
                let page = journal.onceward.list(&scan).await.map_err(Error::journal)?;
                let ReceiptPage { found, unreadable, next, .. } = page;
                for (id, unreadable) in unreadable {
                    // A receipt that cannot be read must not hide the others.
                    let intent = id.key().to_owned();
                    if seen.insert(id) {
                        tell(Resumed { intent, result: Err(Error::journal(unreadable.error)) });
                    }
                }
                for (id, _) in found {
                    if seen.insert(id.clone()) {
                        let client = self.clone();
                        resuming.spawn(async move { client.resume_one(id).await });
                    }
                    while resuming.len() >= AT_ONCE {
                        report_joined(resuming.join_next().await, &mut tell);
                    }
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        while !resuming.is_empty() {
            report_joined(resuming.join_next().await, &mut tell);
        }
        journal.sweep().await;
        Ok(())
    }

    async fn resume_one(self, id: Id) -> Option<Resumed> {
        let result = self.resume_intent(&id).await.transpose()?;
        match &result {
            Ok(answer) => tracing::info!(status = answer.status().as_u16(), "an open intent was finished"),
            Err(error) => tracing::warn!(%error, "an open intent could not be finished"),
        }
        Some(Resumed { intent: id.key().to_owned(), result })
    }

    /// Sends an intent if it is open and no other call is sending it.
    async fn resume_intent(&self, id: &Id) -> Result<Option<Reply>> {
        let journal = self.journal().await?;
        let Some(mut found) = journal.onceward.receipt(id).await.map_err(Error::journal)? else {
            return Ok(None);
        };
        if let Status::Dead(_) = found.status {
            journal.onceward.retry_dead(id).await.map_err(Error::journal)?;
            match journal.onceward.receipt(id).await.map_err(Error::journal)? {
                Some(now) => found = now,
                None => return Ok(None),
            }
        }
        match &found.status {
            Status::Unknown(_) => Err(refused(id, &Refusal::OutcomeUnknown)),
            Status::Waiting(_) => self.send_found(journal, id, &found).await,
            Status::Held(_) if found.due.is_over() => self.send_found(journal, id, &found).await,
            Status::Held(_) | Status::Done(_) | Status::Dead(_) | Status::Gone(_) => Ok(None),
        }
    }

    /// Sends the request in exactly this receipt. If the receipt has changed meanwhile, nothing is sent.
    async fn send_found(&self, journal: &Journal, id: &Id, found: &Receipt) -> Result<Option<Reply>> {
        let call_at_most = self.config().call_at_most;
        let mut sent = None;
        let work = async |lease| self.work(journal, &lease, None, call_at_most, &mut sent).await;
        let resumed = journal.onceward.resume(id, found, journal.sending.clone(), work).await;
        match (sent, resumed) {
            (Some(SendEnd::Answered(answer)), _) => Ok(Some(answer)),
            (Some(SendEnd::Ended(end)), _) => end.map(Some),
            (None, Ok(_)) => Ok(None),
            (None, Err(error)) => Err(Error::journal(error)),
        }
    }
}

fn report_joined(
    joined: Option<std::result::Result<Option<Resumed>, JoinError>>,
    tell: &mut impl FnMut(Resumed),
) {
    match joined {
        Some(Ok(Some(resumed))) => tell(resumed),
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => {}
    }
}
