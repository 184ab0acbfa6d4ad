//! `onceward dead` on a database that it opens itself.

use onceward::{Error, ErrorKind, Onceward, Policy, Result};
use onceward_flows::{DeadLetter, DeadLetterFilter, DeadLetters, FlowTables};
use onceward_stores::sql::Migrations;

use super::{Chosen, Command, LISTED, Selection, Stop, Whose, print_list};
use crate::admin::dead_letters::shape::DeadLetterShown;

pub async fn run(store: &str, whose: Option<&Whose>, command: Command) -> Result<(), Stop> {
    let failed = |error: Error| Stop::Failed(error.to_string());
    let letters = Letters::open(store, whose).await.map_err(failed)?;
    match apply(&letters, command).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Stop::Refused("there is no such dead letter of this consumer".into())),
        Err(error) if error.kind() == ErrorKind::Conflict => Err(Stop::Refused(error.to_string())),
        Err(error) => Err(failed(error)),
    }
}

/// Whose dead letters are looked at.
enum Letters {
    Of(DeadLetters),
    OfAll(FlowTables),
}

impl Letters {
    async fn open(store: &str, whose: Option<&Whose>) -> Result<Self> {
        let tables = FlowTables::open_with(store, Migrations::Require).await?;
        let Some(whose) = whose else { return Ok(Self::OfAll(tables)) };
        let onceward = Onceward::new(onceward_stores::open(store).await?)?;
        Ok(Self::Of(DeadLetters::new(tables, onceward, &whose.source, &whose.consumer)))
    }

    async fn list(&self, filter: &DeadLetterFilter, after: i64, limit: u32) -> Result<Vec<DeadLetter>> {
        match self {
            Self::Of(dead) => dead.list(filter, after, limit).await,
            Self::OfAll(tables) => tables.dead_letters_of_all(filter, after, limit).await,
        }
    }
}

/// Returns whether what was named is there.
async fn apply(letters: &Letters, command: Command) -> Result<bool> {
    match (command, letters) {
        (Command::List(selection), _) => list(letters, &selection).await?,
        (Command::Export(selection), _) => export(letters, &selection).await?,
        (command, Letters::Of(dead)) => return change(letters, dead, command).await,
        // The command line has one for everything but lists.
        (_, Letters::OfAll(_)) => return Err(Error::new(ErrorKind::Invalid, "--consumer is missing")),
    }
    Ok(true)
}

async fn list(letters: &Letters, selection: &Selection) -> Result<()> {
    let limit = selection.limit.unwrap_or(LISTED);
    let mut found = letters.list(&selection.filter(), 0, limit.saturating_add(1)).await?;
    let is_cut = found.len() > limit as usize;
    found.truncate(limit as usize);
    let shown: Vec<_> = found.iter().map(DeadLetterShown::in_list).collect();
    print_list(&shown, matches!(letters, Letters::OfAll(_)), is_cut);
    Ok(())
}

async fn export(letters: &Letters, selection: &Selection) -> Result<()> {
    let mut pages = Pages::of(letters, selection);
    while let Some(found) = pages.next().await? {
        for letter in &found {
            let shown = DeadLetterShown::new(letter);
            println!("{}", serde_json::to_string(&shown).expect("it is JSON"));
        }
    }
    Ok(())
}

/// Shows or changes those of one consumer, which are `letters` too. Returns whether what was named is there.
async fn change(letters: &Letters, dead: &DeadLetters, command: Command) -> Result<bool> {
    match command {
        Command::List(_) | Command::Export(_) => {}
        Command::Show { message } => match find(dead, &message).await? {
            Some(letter) => {
                let shown = DeadLetterShown::new(&letter);
                println!("{}", serde_json::to_string_pretty(&shown).expect("it is JSON"));
            }
            None => return Ok(false),
        },
        Command::Retry { message: Some(message), .. } => return dead.retry(&message).await,
        Command::Retry { dry_run: true, selection, .. } => count(letters, &selection).await?,
        Command::Retry { message: None, pace, selection, .. } => {
            let count = dead.retry_all(&selection.filter(), pace).await?;
            println!("{count} will be tried again");
        }
        Command::RetrySequence { key } => {
            let filter = DeadLetterFilter::default().with_ordering_key(key);
            return match dead.list(&filter, 0, 1).await?.first() {
                Some(first) => dead.retry(first.message.id()).await,
                None => Ok(false),
            };
        }
        Command::Settle(Chosen { message: Some(message), .. }) => {
            return dead.settle_done(&message, &Policy::queue()).await;
        }
        Command::Discard(Chosen { message: Some(message), .. }) => {
            return dead.discard(&message, &Policy::queue()).await;
        }
        Command::Settle(Chosen { dry_run: true, selection, .. })
        | Command::Discard(Chosen { dry_run: true, selection, .. }) => count(letters, &selection).await?,
        Command::Settle(Chosen { selection, .. }) => {
            let settle = async |id: &str| dead.settle_done(id, &Policy::queue()).await;
            println!("{} settled", each(letters, &selection, settle).await?);
        }
        Command::Discard(Chosen { selection, .. }) => {
            let discard = async |id: &str| dead.discard(id, &Policy::queue()).await;
            println!("{} discarded", each(letters, &selection, discard).await?);
        }
    }
    Ok(true)
}

/// Changes all that match, and returns how many.
async fn each(
    letters: &Letters,
    selection: &Selection,
    change: impl AsyncFn(&str) -> Result<bool>,
) -> Result<u64> {
    let (mut count, mut pages) = (0, Pages::of(letters, selection));
    while let Some(found) = pages.next().await? {
        for letter in found {
            count += u64::from(change(letter.message.id()).await?);
        }
    }
    Ok(count)
}

async fn count(letters: &Letters, selection: &Selection) -> Result<()> {
    let (mut count, mut pages) = (0, Pages::of(letters, selection));
    while let Some(found) = pages.next().await? {
        count += found.len();
    }
    println!("{count} match");
    Ok(())
}

impl Selection {
    fn filter(&self) -> DeadLetterFilter {
        let mut filter = DeadLetterFilter::default().with_older_than(self.older_than());
        filter.topic.clone_from(&self.topic);
        filter.ordering_key.clone_from(&self.key);
        filter.error.clone_from(&self.error);
        filter
    }
}

/// All dead letters that match, a page at a time.
struct Pages<'a> {
    letters: &'a Letters,
    filter: DeadLetterFilter,
    after: i64,
    /// Nothing there: no limit.
    left: Option<u32>,
}

impl<'a> Pages<'a> {
    fn of(letters: &'a Letters, selection: &Selection) -> Self {
        Self { letters, filter: selection.filter(), after: 0, left: selection.limit }
    }

    async fn next(&mut self) -> Result<Option<Vec<DeadLetter>>> {
        let most = self.left.unwrap_or(u32::MAX).min(100);
        if most == 0 {
            return Ok(None);
        }
        let letters = self.letters.list(&self.filter, self.after, most).await?;
        let Some(last) = letters.last() else { return Ok(None) };
        self.after = last.number;
        let count = u32::try_from(letters.len()).unwrap_or(u32::MAX);
        self.left = self.left.map(|left| left.saturating_sub(count));
        Ok(Some(letters))
    }
}

async fn find(dead: &DeadLetters, message: &str) -> Result<Option<DeadLetter>> {
    let mut filter = DeadLetterFilter::default();
    filter.message_id = Some(message.to_owned());
    Ok(dead.list(&filter, 0, 1).await?.pop())
}
