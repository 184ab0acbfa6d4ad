//! `onceward dead --admin URL`: through the receipts API of a running process.

use super::{Chosen, Command, LISTED, Selection, Stop, Whose, print_list};
use crate::admin::dead_letters::shape::{
    ChangeDeadLetterAsked, ChangeDeadLettersAsked, DeadLetterChange, DeadLetterShown, DeadLettersChanged,
    DeadLettersShown,
};
use crate::receipts::admin_client::{AdminClient, read};

/// The dead letters of a consumer, or of all, behind an admin listener.
pub struct Remote {
    pub client: AdminClient,
    pub whose: Option<Whose>,
    pub by: Option<String>,
}

impl Remote {
    pub async fn run(&self, command: Command) -> Result<(), Stop> {
        self.call(command).await.map_err(Stop::Refused)
    }

    async fn call(&self, command: Command) -> Result<(), String> {
        use DeadLetterChange::{Discard, Retry, Settle};
        match command {
            Command::List(selection) => {
                let limit = selection.limit.unwrap_or(LISTED);
                let (mut shown, mut after, mut is_cut) = (Vec::new(), None, limit == 0);
                while !is_cut {
                    let left = limit - u32::try_from(shown.len()).unwrap_or(limit);
                    let page = self.page(&selection, false, left, after).await?;
                    shown.extend(page.dead_letters);
                    after = page.next;
                    is_cut = shown.len() >= limit as usize;
                    if after.is_none() {
                        break;
                    }
                }
                print_list(&shown, self.whose.is_none(), after.is_some());
            }
            Command::Export(selection) => {
                let (mut left, mut after) = (selection.limit.unwrap_or(u32::MAX), None);
                while left > 0 {
                    let page = self.page(&selection, true, left, after).await?;
                    for letter in &page.dead_letters {
                        println!("{}", serde_json::to_string(letter).expect("it is JSON"));
                    }
                    left = left.saturating_sub(u32::try_from(page.dead_letters.len()).unwrap_or(left));
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
            Command::Show { message } => {
                let Whose { source, consumer } = self.whose()?;
                let query =
                    [("source", Some(&**source)), ("consumer", Some(consumer)), ("message", Some(&message))];
                let shown: DeadLetterShown = read(&self.client.get("/v1/dead-letter", &query).await?)?;
                println!("{}", serde_json::to_string_pretty(&shown).expect("it is JSON"));
            }
            Command::Retry { message: Some(message), .. } => {
                self.change("/v1/retry-dead-letter", Some(message), None).await?;
            }
            Command::RetrySequence { key } => {
                self.change("/v1/retry-dead-letter", None, Some(key)).await?;
            }
            Command::Settle(Chosen { message: Some(message), .. }) => {
                self.change("/v1/settle-dead-letter", Some(message), None).await?;
            }
            Command::Discard(Chosen { message: Some(message), .. }) => {
                self.change("/v1/discard-dead-letter", Some(message), None).await?;
            }
            Command::Retry { message: None, dry_run, pace, selection, .. } => {
                self.change_all(Retry, &selection, Some(pace), dry_run, "will be tried again").await?;
            }
            Command::Settle(Chosen { dry_run, selection, .. }) => {
                self.change_all(Settle, &selection, None, dry_run, "settled").await?;
            }
            Command::Discard(Chosen { dry_run, selection, .. }) => {
                self.change_all(Discard, &selection, None, dry_run, "discarded").await?;
            }
        }
        Ok(())
    }

    /// Whose they are; known for all but lists, by the command line.
    fn whose(&self) -> Result<&Whose, String> {
        self.whose.as_ref().ok_or_else(|| "--consumer is missing".to_owned())
    }

    async fn page(
        &self,
        selection: &Selection,
        contents: bool,
        limit: u32,
        after: Option<i64>,
    ) -> Result<DeadLettersShown, String> {
        let older = older_than_ms(selection).to_string();
        let (limit, after) = (limit.to_string(), after.map(|after| after.to_string()));
        let query = [
            ("source", self.whose.as_ref().map(|whose| whose.source.as_str())),
            ("consumer", self.whose.as_ref().map(|whose| whose.consumer.as_str())),
            ("topic", selection.topic.as_deref()),
            ("ordering_key", selection.key.as_deref()),
            ("error", selection.error.as_deref()),
            ("older_than_ms", Some(older.as_str())),
            ("contents", contents.then_some("true")),
            ("limit", Some(limit.as_str())),
            ("after", after.as_deref()),
        ];
        read(&self.client.get("/v1/dead-letters", &query).await?)
    }

    async fn change(&self, path: &str, message: Option<String>, key: Option<String>) -> Result<(), String> {
        let Whose { source, consumer } = self.whose()?;
        let asked = ChangeDeadLetterAsked {
            consumer: consumer.clone(),
            source: Some(source.clone()),
            message,
            ordering_key: key,
            by: self.by.clone(),
            reason: None,
        };
        self.client.post(path, &asked).await.map(drop)
    }

    /// A page after the other, until there are no more or the limit is reached.
    async fn change_all(
        &self,
        change: DeadLetterChange,
        selection: &Selection,
        pace: Option<u32>,
        dry_run: bool,
        done: &str,
    ) -> Result<(), String> {
        let Whose { source, consumer } = self.whose()?;
        let mut asked = ChangeDeadLettersAsked {
            change,
            consumer: consumer.clone(),
            source: Some(source.clone()),
            topic: selection.topic.clone(),
            ordering_key: selection.key.clone(),
            error: selection.error.clone(),
            older_than_ms: Some(older_than_ms(selection)).filter(|ms| *ms > 0),
            // `--all` was said.
            all: true,
            pace,
            dry_run,
            limit: None,
            after: None,
            by: self.by.clone(),
            reason: None,
        };
        // The limit is one of those that match, as it is without `--admin`; a retry takes all.
        let limit = if change == DeadLetterChange::Retry { None } else { selection.limit };
        let (mut left, mut count) = (limit.map_or(u64::MAX, u64::from), 0);
        while left > 0 {
            asked.limit = limit.map(|_| u32::try_from(left).unwrap_or(u32::MAX));
            let changed: DeadLettersChanged =
                read(&self.client.post_for("/v1/change-dead-letters", &asked).await?)?;
            count += if dry_run { changed.matched } else { changed.changed };
            left = left.saturating_sub(changed.matched);
            asked.after = changed.next;
            if changed.next.is_none() {
                break;
            }
        }
        println!("{count} {}", if dry_run { "match" } else { done });
        Ok(())
    }
}

fn older_than_ms(selection: &Selection) -> u64 {
    u64::try_from(selection.older_than().as_millis()).unwrap_or(u64::MAX)
}
