//! Scans: the indexes of all buckets, merged.
//!
//! Every index is sorted by due time and id, so a scan has one order over all of them, and a cursor is a place in it.
//! A page asks each index for a few entries. Where an index had more, the page must not go past the last one that it
//! gave: the next may come before what other indexes have there.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};
use redis::{Cmd, Value, cmd};

use super::errors::CallEffect;
use super::groups::groups;
use super::scripts::Script;
use super::store::{RedisStore, strange, timed};
use crate::kit;
use crate::kit::cursor::foreign;

/// Bytes of the due time before the id in an entry.
const DUE_BYTES: usize = 8;
/// Entries that are asked of each index, besides its share of the page.
const ENTRIES_SPARE: usize = 4;
/// An index is asked for this many times its share of a page, because records are not divided evenly.
const SHARES: usize = 8;

/// One entry of an index. In the order of scans: by due time and id, which is the order of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    bytes: Vec<u8>,
    bucket: usize,
    state: State,
}

/// An index: that of a state in a bucket.
#[derive(Clone, Copy)]
struct Index {
    bucket: usize,
    state: State,
}

pub(super) async fn scan(store: &RedisStore, query: &Scan) -> Result<Page> {
    let (after, limit) = (query.after.as_ref(), kit::scan_limit(query));
    match &query.target {
        ScanTarget::Due(state) => by_index(store, *state, "now", &Filter::default(), after, limit).await,
        ScanTarget::Matching(filter) => match kit::only_id(filter) {
            Some(id) => only(store, id.ok(), filter).await,
            None => by_index(store, filter.state, "", filter, after, limit).await,
        },
        ScanTarget::StepsOf(parent) => steps(store, parent, after, limit).await,
    }
}

/// The page of a filter that names one id. Parts that make no id match nothing.
async fn only(store: &RedisStore, id: Option<Id>, filter: &Filter) -> Result<Page> {
    let mut page = Page::default();
    if let Some(id) = id {
        read(store, &[(id, None)], &mut page).await?;
        page.found.retain(|(id, found)| filter.matches(id, found.state));
    }
    Ok(page)
}

/// A page of entries of the indexes of one state, or of all.
async fn by_index(
    store: &RedisStore,
    state: Option<State>,
    until: &str,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    if after.is_some_and(|cursor| cursor.0.len() <= DUE_BYTES) {
        return Err(foreign());
    }
    let states = state.map_or(State::ALL.to_vec(), |state| vec![state]);
    let buckets = store.keys.buckets();
    let indexes = (0..buckets).flat_map(|bucket| states.iter().map(move |&state| Index { bucket, state }));
    let (entries, is_end) = merged(store, &indexes.collect::<Vec<_>>(), until, after, limit).await?;
    let mut page = Page::default();
    if !is_end {
        page.next = entries.last().map(|entry| Cursor(entry.bytes.clone().into()));
    }
    let ids = entries.into_iter().filter_map(|entry| {
        let id = Id::from_bytes(&entry.bytes[DUE_BYTES..]).ok()?;
        // By the id alone, as far as that tells: what cannot match need not be read.
        filter.matches(&id, entry.state).then_some((id, Some(entry)))
    });
    read(store, &ids.collect::<Vec<_>>(), &mut page).await?;
    Ok(page)
}

/// The first entries of these indexes in the order of scans, and whether there are no more.
async fn merged(
    store: &RedisStore,
    indexes: &[Index],
    until: &str,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<(Vec<Entry>, bool)> {
    let from = after.map_or(b"-".to_vec(), |cursor| [b"(", &cursor.0[..]].concat());
    let from = &from;
    let each = limit.min(limit * SHARES / store.keys.buckets()) + ENTRIES_SPARE;
    let groups = groups(indexes, |index| (index.bucket, 0));
    let calls = groups.iter().map(|group| async move {
        let fill = |command: &mut Cmd| {
            command.arg(group.len());
            for index in group {
                command.arg(store.keys.index(index.bucket, index.state));
            }
            command.arg(from).arg(until).arg(each);
        };
        match store.servers.call(group[0].bucket, Script::List, CallEffect::Reads, fill).await? {
            Value::Array(lists) if lists.len() == group.len() => Ok(lists),
            _ => Err(strange()),
        }
    });
    let (mut entries, mut horizon) = (BTreeSet::new(), None::<Entry>);
    for (group, lists) in groups.iter().zip(join_all(calls).await) {
        for (&Index { bucket, state }, listed) in group.iter().zip(lists?) {
            let listed = listed.into_sequence().map_err(|_| strange())?;
            let count = listed.len();
            let mut last = None;
            for entry in listed {
                let Value::BulkString(bytes) = entry else { return Err(strange()) };
                let entry = Entry { bytes, bucket, state };
                last = Some(entry.clone());
                entries.insert(entry);
            }
            if count == each {
                horizon = horizon.into_iter().chain(last).min();
            }
        }
    }
    let is_end = horizon.is_none() && entries.len() <= limit;
    let within =
        entries.into_iter().take_while(|entry| horizon.as_ref().is_none_or(|horizon| entry <= horizon));
    Ok((within.take(limit).collect(), is_end))
}

/// A page of the steps of an intent, in the order of their ids.
async fn steps(store: &RedisStore, parent: &Id, after: Option<&Cursor>, limit: usize) -> Result<Page> {
    let from = after.map_or(b"-".to_vec(), |cursor| [b"(", &cursor.0[..]].concat());
    let mut command = cmd("ZRANGEBYLEX");
    command.arg(store.keys.steps(parent)).arg(from).arg("+").arg("LIMIT").arg(0).arg(limit);
    let listed = store.servers.ask(store.keys.bucket(parent), &command).await?;
    let listed = listed.into_sequence().map_err(|_| strange())?;
    let mut page = Page::default();
    let mut ids = Vec::with_capacity(listed.len());
    for step in &listed {
        let Value::BulkString(bytes) = step else { return Err(strange()) };
        ids.extend(Id::from_bytes(bytes).ok().map(|id| (id, None)));
    }
    if let Some(Value::BulkString(last)) = listed.last().filter(|_| listed.len() == limit) {
        page.next = Some(Cursor(last.clone().into()));
    }
    read(store, &ids, &mut page).await?;
    Ok(page)
}

/// Reads the records of a page, in this order. One that has changed since it was listed is elsewhere in the order now.
async fn read(store: &RedisStore, listed: &[(Id, Option<Entry>)], page: &mut Page) -> Result<()> {
    let all: Vec<usize> = (0..listed.len()).collect();
    let groups = groups(&all, |&at| (store.keys.bucket(&listed[at].0), 0));
    let calls = groups.iter().map(|group| async move {
        let fill = |command: &mut Cmd| {
            command.arg(group.len());
            for &at in group {
                command.arg(store.keys.record(&listed[at].0));
            }
            for entry in group.iter().filter_map(|&at| listed[at].1.as_ref()) {
                command.arg(store.keys.index(entry.bucket, entry.state)).arg(&entry.bytes);
            }
        };
        let bucket = store.keys.bucket(&listed[group[0]].0);
        let answer = store.servers.call(bucket, Script::Read, CallEffect::Reads, fill).await?;
        timed(answer, group.len())
    });
    let mut answers: Vec<Option<(u64, Value)>> = listed.iter().map(|_| None).collect();
    for (group, called) in groups.iter().zip(join_all(calls).await) {
        let (now_us, values) = called?;
        group.iter().zip(values).for_each(|(&at, value)| answers[at] = Some((now_us, value)));
    }
    for ((id, _), (now_us, value)) in listed.iter().zip(answers.into_iter().flatten()) {
        match store.found(id, value, now_us) {
            Ok(found) => page.found.extend(found.map(|found| (id.clone(), found))),
            Err(error) => page.unreadable.push((id.clone(), error)),
        }
    }
    Ok(())
}
