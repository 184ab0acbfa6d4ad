//! Scans: the indexes of all states, merged.
//!
//! Every index is sorted by due time and id, so a scan has one order over all of them, and a cursor is a place in it.

use std::collections::BTreeMap;

use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};
use serde_json::Value;

use super::api::{self, Range};
use super::errors::{CallEffect, strange};
use super::keys::{DUE_BYTES, behind};
use super::record;
use super::store::EtcdStore;
use crate::kit;
use crate::kit::cursor::foreign;

/// A place in an index: due time and id.
type Place = Vec<u8>;

pub(super) async fn scan(store: &EtcdStore, query: &Scan) -> Result<Page> {
    let (after, limit) = (query.after.as_ref(), kit::scan_limit(query));
    match &query.target {
        ScanTarget::Due(state) => {
            let until = store.client.clock.now_us();
            by_index(store, *state, Some(until), &Filter::default(), after, limit).await
        }
        ScanTarget::Matching(filter) => match kit::only_id(filter) {
            Some(id) => only(store, id.ok(), filter).await,
            None => by_index(store, filter.state, None, filter, after, limit).await,
        },
        ScanTarget::StepsOf(parent) => steps(store, parent, after, limit).await,
    }
}

/// The page of a filter that names one id. Parts that make no id match nothing.
async fn only(store: &EtcdStore, id: Option<Id>, filter: &Filter) -> Result<Page> {
    let mut page = Page::default();
    if let Some(id) = id {
        read(store, &[(id, None)], &mut page).await?;
        page.found.retain(|(id, found)| filter.matches(id, found.state));
    }
    Ok(page)
}

/// A page of entries of the indexes of one state, or of all.
async fn by_index(
    store: &EtcdStore,
    state: Option<State>,
    until_us: Option<u64>,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    if after.is_some_and(|cursor| cursor.0.len() <= DUE_BYTES) {
        return Err(foreign());
    }
    let states = state.map_or(State::ALL.to_vec(), |state| vec![state]);
    let lists: Vec<Value> = states
        .iter()
        .map(|&state| {
            let index = store.keys.index(state);
            // The place right behind the cursor.
            let from = after.map_or(index.clone(), |cursor| [&index[..], &cursor.0[..], &[0]].concat());
            let end = match until_us {
                Some(now_us) => [&index[..], &now_us.saturating_add(1).to_be_bytes()].concat(),
                None => behind(&index),
            };
            (from, end)
        })
        .map(
            |(from, end)| {
                if from < end { api::list(&from, &end, limit) } else { api::list(&from, &end_of(&from), 1) }
            },
        )
        .collect();
    let (mut places, mut is_end) = (BTreeMap::<Place, State>::new(), true);
    for (&state, range) in states.iter().zip(listed(store, &lists).await?) {
        let index = store.keys.index(state);
        is_end &= !range.more;
        for entry in range.kvs {
            if let Some(place) = entry.key.strip_prefix(&index[..]) {
                places.insert(place.to_vec(), state);
            }
        }
    }
    is_end &= places.len() <= limit;
    let places: Vec<(Place, State)> = places.into_iter().take(limit).collect();
    let mut page = Page::default();
    if !is_end {
        page.next = places.last().map(|(place, _)| Cursor(place.clone().into()));
    }
    let ids = places.into_iter().filter_map(|(place, state)| {
        let id = Id::from_bytes(place.get(DUE_BYTES..)?).ok()?;
        // By the id alone, as far as that tells: what cannot match need not be read.
        filter.matches(&id, state).then_some((id, Some((place, state))))
    });
    read(store, &ids.collect::<Vec<_>>(), &mut page).await?;
    Ok(page)
}

/// An end with nothing in between: the cursor is past what is asked for.
fn end_of(from: &[u8]) -> Vec<u8> {
    [from, &[0]].concat()
}

/// A page of the steps of an intent, in the order of their ids.
async fn steps(store: &EtcdStore, parent: &Id, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let steps = store.keys.steps(parent);
    let from = after.map_or(steps.clone(), |cursor| [&steps[..], &cursor.0[..], &[0]].concat());
    let range = listed(store, &[api::list(&from, &behind(&steps), limit)]).await?.remove(0);
    let mut page = Page::default();
    let places: Vec<&[u8]> =
        range.kvs.iter().filter_map(|entry| entry.key.strip_prefix(&steps[..])).collect();
    if range.more {
        page.next = places.last().map(|&place| Cursor(place.to_vec().into()));
    }
    let ids: Vec<_> = places.iter().filter_map(|place| Some((Id::from_bytes(place).ok()?, None))).collect();
    read(store, &ids, &mut page).await?;
    Ok(page)
}

async fn listed(store: &EtcdStore, lists: &[Value]) -> Result<Vec<Range>> {
    let answer = store.txn(&api::all(lists), CallEffect::Reads).await?;
    let ranges: Vec<Range> =
        answer.responses.into_iter().filter_map(|response| response.response_range).collect();
    if ranges.len() == lists.len() {
        Ok(ranges)
    } else {
        Err(strange(&store.client.http.name(), CallEffect::Reads))
    }
}

/// Reads the records of a page, in this order. One that has changed since it was listed is elsewhere in the order now.
async fn read(store: &EtcdStore, listed: &[(Id, Option<(Place, State)>)], page: &mut Page) -> Result<()> {
    let there = store.read(&listed.iter().map(|(id, _)| id).collect::<Vec<_>>()).await?;
    for ((id, place), there) in listed.iter().zip(there) {
        let Some(there) = there? else { continue };
        if let (Some((place, state)), Ok(head)) = (place, record::head(id, &there.value))
            && (head.state != *state || head.due_us.to_be_bytes() != place[..DUE_BYTES])
        {
            continue;
        }
        match store.found(id, there) {
            Ok(found) => page.found.push((id.clone(), found)),
            Err(error) => page.unreadable.push((id.clone(), error)),
        }
    }
    Ok(())
}
