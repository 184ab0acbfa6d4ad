//! Which lists of secrets gateways use, kept in the store for as long as receipts can exist that were written with them. A
//! rotation that is ended too early would leave receipts that nobody finds, and run everything in them again.
//!
//! ```text
//! scope `onceward`, operation `gateway secrets in use`
//!   key <front>/<random>     done: the check values of the list, the one in front first. Kept as long as a receipt that
//!                            is written now
//!   key <front>/<digest>     the same, where receipts are kept forever
//! ```
//!
//! A gateway writes its list when it starts, when its routes change and every hour. An intent has a receipt under each
//! secret of the list, so a gateway that knows one of them finds it.

use std::time::Duration;

use onceward::{Erase, Id, Onceward, Retention};
use onceward_http::fingerprint::Secrets;

use super::known_identities::has_unsettled;
use super::known_secrets::{NewSecret, check_value};
use super::own_records;
use super::secret::VARIABLE;

const OPERATION: &str = "gateway secrets in use";

/// A list that receipts can exist under.
struct List {
    id: Id,
    /// Check values; the one in front is the first.
    secrets: Vec<String>,
    /// How long receipts can exist that were written with it; `None` means forever.
    ends_in: Option<Duration>,
}

/// Refuses to continue without any secret of a list that receipts may exist under, and writes the own list. `kept` is
/// how long a receipt that is written now can exist.
pub async fn exchange(
    onceward: &Onceward,
    secrets: &Secrets,
    kept: Retention,
    new: NewSecret,
) -> Result<(), String> {
    let own = check_values(secrets);
    match new {
        // Before it is written: the list of a gateway that is refused must not count.
        NewSecret::Refused => refuse_lost(&lists(onceward).await?, &own)?,
        NewSecret::Accepted => forget_lost(onceward, &own).await?,
    }
    let id = record(onceward, &own, kept).await?;
    // Again: of two gateways that start at once, at least one finds the other's.
    let lists = lists(onceward).await?;
    if let Err(refused) = refuse_lost(&lists, &own) {
        forget(onceward, &id).await?;
        return Err(refused);
    }
    if let Some(list) = lists.iter().find(|list| !own.contains(&list.secrets[0])) {
        tracing::warn!(
            until = until(list.ends_in),
            "a secret that was in front is not listed any more: retries of requests without credentials that were first \
             sent before that are refused as another request (422) until then; list it in {VARIABLE} to answer them"
        );
    }
    Ok(())
}

/// Writes the own list again, so that it is known for as long as its receipts.
pub async fn renew(onceward: &Onceward, secrets: &Secrets, kept: Retention) -> Result<(), String> {
    let own = check_values(secrets);
    record(onceward, &own, kept).await?;
    let Retention::For(time) = kept else { return Ok(()) };
    let others: Vec<List> = lists(onceward).await?.into_iter().filter(|list| list.secrets != own).collect();
    // An unknown outcome has no end, and neither has the id that it is known by.
    if !others.is_empty() && has_unsettled(onceward, time).await? {
        let mut written: Vec<Vec<String>> = Vec::new();
        for list in others {
            if !written.contains(&list.secrets) {
                record(onceward, &list.secrets, kept).await?;
                written.push(list.secrets);
            }
        }
    }
    Ok(())
}

fn check_values(secrets: &Secrets) -> Vec<String> {
    secrets.all().map(check_value).collect()
}

/// An error if receipts can exist that none of these secrets finds.
fn refuse_lost(lists: &[List], own: &[String]) -> Result<(), String> {
    let lost = lists.iter().filter(|list| is_lost(list, own));
    // Without an end it lasts the longest.
    let Some(longest) = lost.max_by_key(|list| list.ends_in.unwrap_or(Duration::MAX)) else { return Ok(()) };
    Err(format!(
        "secret: the store can have receipts that were written with a secret that is not listed any more, so their \
         retries would run again. List that secret too in {VARIABLE}, after the others and with a comma between them; \
         it is safe to leave it out {}. To give those receipts up on purpose, start once with --accept-new-secret",
        until(longest.ends_in)
    ))
}

fn is_lost(list: &List, own: &[String]) -> bool {
    !list.secrets.iter().any(|secret| own.contains(secret))
}

fn until(ends_in: Option<Duration>) -> String {
    match ends_in {
        None => "never, because receipts are kept forever".into(),
        Some(time) => {
            let minutes = time.as_secs().div_ceil(60);
            format!("in {} h {:02} min", minutes / 60, minutes % 60)
        }
    }
}

async fn record(onceward: &Onceward, list: &[String], kept: Retention) -> Result<Id, String> {
    let text = list.join(",");
    let suffix = match kept {
        Retention::Forever => blake3::hash(text.as_bytes()).to_hex()[..16].to_owned(),
        Retention::For(_) => own_records::random_suffix()?,
    };
    let id = own_records::id(OPERATION, &format!("{}/{suffix}", list[0]));
    own_records::record(onceward, id.clone(), &text, kept).await?;
    Ok(id)
}

async fn lists(onceward: &Onceward) -> Result<Vec<List>, String> {
    let mut lists = Vec::new();
    for id in own_records::recorded(onceward, OPERATION).await? {
        let receipt = onceward.receipt(&id).await.map_err(|error| format!("store: {error}"))?;
        // Swept meanwhile, or a write that never ended: nothing ran with it.
        let Some(receipt) = receipt else { continue };
        let Some(outcome) = receipt.status.outcome() else { continue };
        let secrets = String::from_utf8_lossy(outcome.body()).split(',').map(str::to_owned).collect();
        let ends_in = match receipt.due {
            onceward::Due::Never => None,
            onceward::Due::In(time) => Some(time),
            onceward::Due::Over(_) => continue,
        };
        lists.push(List { id, secrets, ends_in });
    }
    Ok(lists)
}

async fn forget_lost(onceward: &Onceward, own: &[String]) -> Result<(), String> {
    for list in lists(onceward).await?.iter().filter(|list| is_lost(list, own)) {
        tracing::warn!(
            check_value = list.secrets[0],
            "receipts that were written with a previous secret are given up: a retry of a request from before runs again"
        );
        forget(onceward, &list.id).await?;
    }
    Ok(())
}

async fn forget(onceward: &Onceward, id: &Id) -> Result<(), String> {
    let erased = onceward.erase(id, &Erase::new().with_reopen(true)).await;
    erased.map(drop).map_err(|error| format!("store: {error}"))
}

#[cfg(test)]
#[path = "secrets_in_use_test.rs"]
mod tests;
