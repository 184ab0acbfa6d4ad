//! The terms by which gateways name intents, kept in the store. A gateway that is restarted with other terms would know
//! every intent by another id and run a retry again, so it finds the previous terms here and claims under both ids.
//!
//! ```text
//! scope `onceward`, operation `gateway identity`
//!   key <digest>/<random>    done: a table of terms, as JSON. Kept for as long as receipts that were written until now
//!   key <digest>/forever     the same, where receipts are kept forever
//! ```
//!
//! A gateway writes its own table when it starts and every hour. So a table is in the store for as long as a receipt can
//! be that was written under it, by any gateway, and the store's own clock ends it.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onceward::{Erase, Filter, Id, Onceward, Retention, Scan, ScanTarget, State};

use super::identity_terms::TermsTable;
use super::own_records;
use super::path_rules::PathRules;
use super::route_table::RouteTable;
use super::secrets_in_use;
use super::serve::Gateway;
use crate::config::Routes;

const OPERATION: &str = "gateway identity";
const FOREVER: &str = "forever";
/// How often a gateway writes its table.
const RENEW_EVERY: Duration = Duration::from_hours(1);
/// How much longer than receipts a table is kept: two renewals may fail.
const MARGIN: Duration = Duration::from_hours(3);
const PAGE: usize = 256;
/// Unsettled receipts that are read to find an old one. If there are more, one of them may be old.
const UNSETTLED_READ_MAX: usize = 10_000;

/// What a gateway does about former terms in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewIdentity {
    /// It claims under them too.
    ClaimBoth,
    /// By the flag `--accept-new-identity`: it forgets them.
    Accepted,
}

/// Makes the terms of these routes known to the store. Returns the former ones under which receipts may exist.
pub async fn exchange(
    onceward: &Onceward,
    routes: &Routes,
    rules: PathRules,
    new: NewIdentity,
) -> Result<Vec<TermsTable>, String> {
    let own = TermsTable::of(routes).with_path_rules(rules);
    if new == NewIdentity::ClaimBoth {
        // Before its table is written: one that is refused must not count as a former one.
        let former = others(onceward, &own).await?;
        let refused = former
            .iter()
            .find_map(|former| own.other_key_source(former).or_else(|| own.other_path_rules(former)));
        if let Some(why) = refused {
            return Err(why);
        }
    }
    // First: of two gateways that start at once, at least one then finds the other's.
    record(onceward, &own, kept(routes)).await?;
    if new == NewIdentity::Accepted {
        forget_others(onceward, &own).await?;
    }
    let former = others(onceward, &own).await?;
    for table in &former {
        tracing::warn!(
            former = text(table),
            "scope or operation of a route differs from that of receipts in the store: requests are claimed under the \
             former terms too, so that no retry runs again, until no receipt can exist under them; to give these \
             receipts up, start once with --accept-new-identity"
        );
    }
    Ok(former)
}

/// Writes the table and the list of secrets in effect every hour, and stops to claim under previous terms that the
/// store knows no more.
pub async fn keep_known(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        if let Err(error) = renew(&gateway).await {
            tracing::warn!(
                error,
                "the identity terms of the routes could not be written; the next try is in an hour"
            );
        }
        if let Err(error) = renew_secrets(&gateway).await {
            tracing::warn!(error, "the secrets in use could not be written; the next try is in an hour");
        }
    }
}

async fn renew_secrets(gateway: &Gateway) -> Result<(), String> {
    let kept = kept(gateway.table.load().routes());
    secrets_in_use::renew(&gateway.state.onceward, &gateway.state.secrets, kept).await
}

async fn renew(gateway: &Gateway) -> Result<(), String> {
    let _rebuilding = gateway.rebuilding.lock().await;
    let onceward = &gateway.state.onceward;
    let (routes, former) = {
        let table = gateway.table.load();
        (table.routes().clone(), table.former().to_vec())
    };
    let own = TermsTable::of(&routes).with_path_rules(gateway.state.path_rules);
    let kept = kept(&routes);
    record(onceward, &own, kept).await?;
    if former.is_empty() {
        return Ok(());
    }
    // An unknown outcome has no end, and neither has the id that it is known by.
    if let Retention::For(kept) = kept
        && has_unsettled(onceward, kept).await?
    {
        for table in &former {
            record(onceward, table, Retention::For(kept)).await?;
        }
        return Ok(());
    }
    let known = others(onceward, &own).await?;
    let still: Vec<TermsTable> = former.iter().filter(|table| known.contains(table)).cloned().collect();
    if still.len() < former.len() {
        tracing::info!("no receipt can exist under previous identity terms any more");
        gateway.table.store(Arc::new(RouteTable::new(&gateway.state, &routes, still)?));
    }
    Ok(())
}

/// For how long a receipt that is written now can exist, with the margin; forever if one can.
pub fn kept(routes: &Routes) -> Retention {
    let mut longest = Duration::ZERO;
    for route in routes.each() {
        let tombstone = route.route.policy().on_expired().tombstone();
        let expired = tombstone.unwrap_or(Retention::For(Duration::ZERO));
        for status in (100..=599).filter_map(|status| StatusCode::from_u16(status).ok()) {
            match (route.route.retention_of(status), expired) {
                (Retention::For(kept), Retention::For(expired)) => longest = longest.max(kept + expired),
                _ => return Retention::Forever,
            }
        }
    }
    Retention::For(longest + MARGIN)
}

fn text(table: &TermsTable) -> String {
    serde_json::to_string(table).expect("terms are plain text")
}

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

async fn record(onceward: &Onceward, table: &TermsTable, kept: Retention) -> Result<(), String> {
    let text = text(table);
    let suffix = match kept {
        Retention::Forever => FOREVER.to_owned(),
        Retention::For(_) => own_records::random_suffix()?,
    };
    let id = own_records::id(OPERATION, &format!("{}/{suffix}", digest(&text)));
    own_records::record(onceward, id, &text, kept).await.map(drop)
}

/// The ids of all tables in the store, with their digests.
async fn recorded(onceward: &Onceward) -> Result<Vec<(Id, String)>, String> {
    let ids = own_records::recorded(onceward, OPERATION).await?.into_iter();
    Ok(ids.map(|id| (id.clone(), id.key().split('/').next().unwrap_or_default().to_owned())).collect())
}

/// The tables in the store other than this one.
async fn others(onceward: &Onceward, own: &TermsTable) -> Result<Vec<TermsTable>, String> {
    let mut seen = vec![digest(&text(own))];
    let mut tables = Vec::new();
    for (id, digest) in recorded(onceward).await? {
        if seen.contains(&digest) {
            continue;
        }
        let receipt = onceward.receipt(&id).await.map_err(|error| format!("store: {error}"))?;
        // Swept meanwhile, or a write that never ended: nothing ran under it.
        let Some(outcome) = receipt.as_ref().and_then(|receipt| receipt.status.outcome()) else { continue };
        let table = serde_json::from_slice(outcome.body()).map_err(|error| {
            format!(
                "store: the former identity terms {digest} cannot be read ({error}), so a retry of an earlier request \
                 could run again; start the version that wrote them, or give those receipts up with \
                 --accept-new-identity"
            )
        })?;
        seen.push(digest);
        tables.push(table);
    }
    Ok(tables)
}

async fn forget_others(onceward: &Onceward, own: &TermsTable) -> Result<(), String> {
    let own = digest(&text(own));
    for (id, digest) in recorded(onceward).await? {
        if digest != own {
            tracing::warn!(
                digest,
                "previous identity terms are forgotten: a retry of a request from before runs again"
            );
            let erased = onceward.erase(&id, &Erase::new().with_reopen(true)).await;
            erased.map_err(|error| format!("store: {error}"))?;
        }
    }
    Ok(())
}

/// Returns whether a receipt that nobody has settled was created longer ago than this.
pub async fn has_unsettled(onceward: &Onceward, age: Duration) -> Result<bool, String> {
    for state in [State::Unknown, State::Dead, State::Waiting, State::Held] {
        let (mut read, mut after) = (0, None);
        loop {
            let target = ScanTarget::Matching(Filter::default().with_state(Some(state)));
            let page = onceward.list(&Scan::new(target, PAGE).with_after(after)).await;
            let page = page.map_err(|error| format!("store: {error}"))?;
            read += page.found.len();
            if read > UNSETTLED_READ_MAX
                || !page.unreadable.is_empty()
                || page.found.iter().any(|(_, found)| found.age.created >= age)
            {
                return Ok(true);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "known_identities_test.rs"]
mod tests;
