//! Scans: the shards of an index, merged.
//!
//! Every shard is sorted by due time and id, so a scan has one order over all of them, and a cursor is a place in it. A
//! page asks each shard for a few entries. Where a shard had more, the page must not go past the last one that it gave:
//! the next may come before what other shards have there.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};

use super::errors::{CallEffect, failed};
use super::item::{self, DUE_BYTES, Item, SHARDS, There};
use super::store::DynamoDbStore;
use crate::kit;
use crate::kit::cursor::foreign;

/// Entries that are asked of each shard, besides its share of the page.
const ENTRIES_SPARE: usize = 8;
/// Entries that one call returns, at most.
const CALL_ENTRIES_MAX: usize = 1000;

/// A place in an index: due time and id.
type Place = Vec<u8>;

pub(super) async fn scan(store: &DynamoDbStore, query: &Scan) -> Result<Page> {
    let (after, limit) = (query.after.as_ref(), kit::scan_limit(query));
    match &query.target {
        ScanTarget::Due(state) => {
            let until = store.clock.now_us();
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
async fn only(store: &DynamoDbStore, id: Option<Id>, filter: &Filter) -> Result<Page> {
    let mut page = Page::default();
    if let Some(id) = id {
        read(store, &[(id, None)], &mut page).await?;
        page.found.retain(|(id, found)| filter.matches(id, found.state));
    }
    Ok(page)
}

/// A page of entries of the index of one state, or of all.
async fn by_index(
    store: &DynamoDbStore,
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
    let shards: Vec<(State, u64)> =
        states.iter().flat_map(|&state| (0..SHARDS).map(move |shard| (state, shard))).collect();
    let each = (limit / shards.len() + ENTRIES_SPARE).min(limit).min(CALL_ENTRIES_MAX);
    let lists =
        join_all(shards.iter().map(|&(state, shard)| list(store, state, shard, until_us, after, each))).await;
    let (mut entries, mut horizon) = (BTreeMap::<Place, (Id, State)>::new(), None::<Place>);
    for (&(state, _), listed) in shards.iter().zip(lists) {
        let (items, has_more) = listed?;
        let mut last = None;
        for item in &items {
            let (Some(id), Some(place)) = (item::id(item), item::blob(item, "due_place")) else { continue };
            last = Some(place.to_vec());
            entries.insert(place.to_vec(), (id, state));
        }
        if has_more {
            horizon = horizon.into_iter().chain(last).min();
        }
    }
    let is_end = horizon.is_none() && entries.len() <= limit;
    let entries: Vec<(Place, (Id, State))> = entries
        .into_iter()
        .take_while(|(place, _)| horizon.as_ref().is_none_or(|horizon| place <= horizon))
        .take(limit)
        .collect();
    let mut page = Page::default();
    if !is_end {
        page.next = entries.last().map(|(place, _)| Cursor(place.clone().into()));
    }
    let ids = entries.into_iter().filter_map(|(place, (id, state))| {
        // By the id alone, as far as that tells: what cannot match need not be read.
        filter.matches(&id, state).then_some((id, Some((place, state))))
    });
    read(store, &ids.collect::<Vec<_>>(), &mut page).await?;
    Ok(page)
}

/// The first entries of a shard, and whether there are more.
async fn list(
    store: &DynamoDbStore,
    state: State,
    shard: u64,
    until_us: Option<u64>,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<(Vec<Item>, bool)> {
    // Places are compared as bytes. The one after the cursor is the cursor with a zero behind it.
    let from = after.map_or(vec![0], |cursor| [&cursor.0[..], &[0]].concat());
    let end = match until_us {
        Some(now_us) => now_us.saturating_add(1).to_be_bytes().to_vec(),
        None => vec![u8::MAX; DUE_BYTES + 1],
    };
    if from >= end {
        return Ok((Vec::new(), false));
    }
    let called = store
        .client
        .query()
        .table_name(&*store.table)
        .index_name("due")
        .key_condition_expression("due_shard = :shard AND due_place BETWEEN :from AND :end")
        .expression_attribute_values(":shard", AttributeValue::S(item::shard_name(state, shard)))
        .expression_attribute_values(":from", item::bytes(&from))
        .expression_attribute_values(":end", item::bytes(&end))
        .limit(i32::try_from(limit).unwrap_or(i32::MAX))
        .send()
        .await;
    let answer = called.map_err(|error| failed(&store.table, CallEffect::Reads, &error))?;
    let has_more = answer.last_evaluated_key.is_some_and(|key| !key.is_empty());
    Ok((answer.items.unwrap_or_default(), has_more))
}

/// A page of the steps of an intent, as they are now: they are next to it in the table.
async fn steps(store: &DynamoDbStore, parent: &Id, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let after = after.map(|cursor| {
        let operation = String::from_utf8(cursor.0.to_vec()).map_err(|_| foreign())?;
        let operation = AttributeValue::S(operation);
        Ok(Item::from([("intent".to_owned(), item::intent(parent)), ("operation".to_owned(), operation)]))
    });
    let called = store
        .client
        .query()
        .table_name(&*store.table)
        .consistent_read(true)
        .key_condition_expression("intent = :intent AND begins_with(#operation, :steps)")
        .expression_attribute_names("#operation", "operation")
        .expression_attribute_values(":intent", item::intent(parent))
        .expression_attribute_values(":steps", AttributeValue::S(format!("{}#", parent.operation())))
        .set_exclusive_start_key(after.transpose()?)
        .limit(i32::try_from(limit.min(CALL_ENTRIES_MAX)).unwrap_or(i32::MAX))
        .send()
        .await;
    let answer = called.map_err(|error| failed(&store.table, CallEffect::Reads, &error))?;
    let mut page = Page::default();
    if let Some(last) = &answer.last_evaluated_key {
        page.next =
            item::text(last, "operation").map(|operation| Cursor(operation.as_bytes().to_vec().into()));
    }
    let now_us = store.clock.now_us();
    for found in answer.items() {
        // Steps of steps begin like this too.
        let Some(id) = item::id(found).filter(|id| id.parent().as_ref() == Some(parent)) else { continue };
        match item::there(&id, Some(found), now_us) {
            Ok(There::Record(found)) => page.found.push((id, *found)),
            Ok(There::Nothing | There::Removed(_)) => {}
            Err(error) => page.unreadable.push((id, error)),
        }
    }
    Ok(page)
}

/// Reads the records of a page, in this order. One that has changed since it was listed is elsewhere in the order now.
async fn read(store: &DynamoDbStore, listed: &[(Id, Option<(Place, State)>)], page: &mut Page) -> Result<()> {
    let ids: Vec<Id> = listed.iter().map(|(id, _)| id.clone()).collect();
    let items = store.read(&ids).await;
    let now_us = store.clock.now_us();
    for ((id, listed), item) in listed.iter().zip(items) {
        let item = item?;
        match item::there(id, item.as_ref(), now_us) {
            Ok(There::Record(found)) => {
                let place = item.as_ref().and_then(|item| item::blob(item, "due_place"));
                let is_same = listed
                    .as_ref()
                    .is_none_or(|(listed, state)| place == Some(&listed[..]) && found.state == *state);
                if is_same {
                    page.found.push((id.clone(), *found));
                }
            }
            Ok(There::Nothing | There::Removed(_)) => {}
            Err(error) => page.unreadable.push((id.clone(), error)),
        }
    }
    Ok(())
}
