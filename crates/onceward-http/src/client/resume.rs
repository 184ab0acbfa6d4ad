//! After a restart: what earlier processes left open is finished.

use onceward::{Attempt, Page, Scan, ScanOf, State, World};
use tokio::task::JoinSet;

use super::answer::Answer;
use super::attend::{From, Telling};
use super::client::Client;
use super::error::{Error, ErrorKind, Result};
use super::journal::REQUESTS;
use super::open::Open;
use super::report::Source;

/// An intent that was open, and what became of it.
#[derive(Debug)]
pub struct Resumed {
    /// Its name.
    pub intent: String,
    /// Its answer, or why there is none yet.
    pub result: Result<Answer>,
}

/// How many intents are resumed at the same time: a restart is no reason for a flood.
const AT_ONCE: usize = 16;
const PAGE_RECORDS: usize = 256;

impl Client {
    /// Finishes what earlier processes left: each open request is sent with its own key and its own
    /// bytes, and its answer recorded. Gives what became of each; one that was answered just before a
    /// crash is among them again, because nobody can tell whether that answer was read.
    ///
    /// What somebody is sending at the moment is left alone. What could not be finished now stays open
    /// for the next time, and what is unknown stays unknown.
    pub async fn resume(&self) -> Result<Vec<Resumed>> {
        let mut all = Vec::new();
        self.resume_each(|resumed| all.push(resumed)).await?;
        Ok(all)
    }

    /// Like [`Client::resume`], but tells of each as it comes: for journals with much in them.
    pub async fn resume_each(&self, mut tell: impl FnMut(Resumed)) -> Result<()> {
        let journal = self.journal().await?;
        journal.tidy().await;
        let mut resuming = JoinSet::new();
        let mut after = None;
        loop {
            let of = ScanOf::Matching {
                scope: Some(journal.name.clone()),
                operation: Some(REQUESTS.to_owned()),
                state: Some(State::Done),
            };
            let scan = Scan { of, after, limit: PAGE_RECORDS };
            let Page { found, next } = journal.onceward.list(&scan).await.map_err(Error::journal)?;
            for (id, found) in found {
                let intent = id.key().to_owned();
                match Open::decode(id, &found) {
                    Ok(open) => {
                        let client = self.clone();
                        resuming.spawn(async move { client.resume_one(intent, open).await });
                    }
                    // One that cannot be read must not hide the others.
                    Err(error) => tell(Resumed { intent, result: Err(Error::journal(error)) }),
                }
                while resuming.len() >= AT_ONCE {
                    hear(resuming.join_next().await, &mut tell);
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        while !resuming.is_empty() {
            hear(resuming.join_next().await, &mut tell);
        }
        journal.tidy().await;
        Ok(())
    }

    async fn resume_one(self, intent: String, open: Open) -> Option<Resumed> {
        let result = self.resume_intent(&intent, open).await;
        match &result {
            Err(error) if error.kind() == ErrorKind::InProgress => return None,
            Ok(answer) => tracing::info!(status = answer.status().as_u16(), "an open intent was finished"),
            Err(error) => tracing::warn!(%error, "an open intent could not be finished"),
        }
        Some(Resumed { intent, result })
    }

    async fn resume_intent(&self, intent: &str, open: Open) -> Result<Answer> {
        let journal = self.journal().await?;
        let id = journal.id(intent).map_err(Error::journal)?;
        let ask = journal.ask_to_resume(&id, open.fingerprint());
        let attempt = Attempt(self.inner.shared.world.random());
        let from = From::Journal { seen: Box::new(open.clone()), attempt };
        let (telling, told) = Telling::new();
        let call_at_most = self.terms().call_at_most;
        self.clone().attend(journal.clone(), id, ask, from, call_at_most, telling).await;
        let result = told.await.expect("a call is told its end before it is over");
        // Recorded before the crash, and only not taken away.
        let recorded = match &result {
            Ok(answer) => answer.report().source == Source::Journal,
            Err(error) => error.kind() == ErrorKind::AnswerTooLarge,
        };
        if recorded {
            journal.finished(open).await;
        }
        result
    }
}

fn hear(
    joined: Option<std::result::Result<Option<Resumed>, tokio::task::JoinError>>,
    tell: &mut impl FnMut(Resumed),
) {
    match joined {
        Some(Ok(Some(resumed))) => tell(resumed),
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => {}
    }
}
