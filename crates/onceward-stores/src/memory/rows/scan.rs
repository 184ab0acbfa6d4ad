//! Reading rows page by page, each kind of scan by its own index.

use std::num::NonZeroU64;
use std::ops::Bound;

use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};

use super::{BLOCK_ROWS, LISTS, List, Rows, list_of, live_of};
use crate::kit::{self, cursor};

/// A scan may move this many stale entries for each record it may return.
const MOVES_PER_RECORD_MAX: usize = 8;

impl Rows {
    /// One page. It takes `&mut` because it moves the stale entries that it comes upon.
    pub(crate) fn scan(&mut self, query: &Scan, now_us: u64) -> Result<Page> {
        let (after, limit) = (query.after.as_ref(), kit::scan_limit(query));
        match &query.target {
            ScanTarget::Due(state) => self.scan_due(*state, after, limit, now_us),
            ScanTarget::Matching(filter) => self.scan_matching(filter, after, limit, now_us),
            ScanTarget::StepsOf(parent) => self.scan_steps(parent, after, limit, now_us),
        }
    }

    fn scan_due(
        &mut self,
        state: Option<State>,
        after: Option<&Cursor>,
        limit: usize,
        now_us: u64,
    ) -> Result<Page> {
        let mut after = match after {
            None => Bound::Unbounded,
            Some(cursor) => Bound::Excluded(listed_at(cursor)?),
        };
        // What is done may still stand where its lease ended.
        let lists: &[List] = match state.map(list_of) {
            None => &LISTS,
            Some(List::Waiting) => &[List::Waiting],
            Some(List::Held) => &[List::Held],
            Some(List::Rest) => &[List::Held, List::Rest],
        };
        let (mut page, mut looked_at) = (Page::default(), 0);
        for _ in 0..limit * MOVES_PER_RECORD_MAX {
            let first = |list: &List| self.due[*list as usize].range((after, Bound::Unbounded)).next();
            let next = lists.iter().filter_map(first).min();
            let Some(&(due_us, place)) = next.filter(|(due_us, _)| due_us.get() <= now_us) else {
                return Ok(page);
            };
            after = Bound::Excluded((due_us, place));
            let row = self.at(place);
            if row.due_us != Some(due_us) || row.listed_in != list_of(row.state) {
                self.list(place);
                // Moved to a place that is still to come, or to this one in another list.
                if self.at(place).due_us != Some(due_us) {
                    continue;
                }
            }
            let row = self.at(place);
            if state.is_none_or(|state| row.state == state) {
                page.found.push((row.id.clone(), row.found(now_us)));
            }
            looked_at += 1;
            if looked_at == limit {
                break;
            }
        }
        if let Bound::Excluded((due_us, place)) = after {
            page.next = Some(cursor::pack(&[due_us.get(), u64::from(place)]));
        }
        Ok(page)
    }

    fn scan_matching(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
        now_us: u64,
    ) -> Result<Page> {
        let mut at = after.map(next_place).transpose()?.unwrap_or(0);
        let mut page = Page::default();
        if let Some(id) = kit::only_id(filter) {
            // Parts that make no id match nothing.
            let found = id.ok().and_then(|id| self.found(&id, now_us).map(|found| (id, found)));
            page.found.extend(found.filter(|(id, found)| filter.matches(id, found.state)));
            return Ok(page);
        }
        let live = filter.state.and_then(live_of).map(|live| &self.live[live]);
        let next_from = |from| match live {
            Some(live) => live.first_from(from),
            None => (from < self.places()).then_some(from),
        };
        for _ in 0..limit {
            let Some(place) = next_from(at) else { return Ok(page) };
            at = place + 1;
            if let Some(row) = &self.blocks[place / BLOCK_ROWS][place % BLOCK_ROWS]
                && filter.matches(&row.id, row.state)
            {
                page.found.push((row.id.clone(), row.found(now_us)));
            }
        }
        page.next = next_from(at).map(|_| cursor::pack(&[at as u64]));
        Ok(page)
    }

    fn scan_steps(&self, parent: &Id, after: Option<&Cursor>, limit: usize, now_us: u64) -> Result<Page> {
        let from = after.map(next_place).transpose()?.unwrap_or(0);
        let mut page = Page::default();
        let Some((steps, from)) = self.steps.get(parent).zip(u32::try_from(from).ok()) else {
            return Ok(page);
        };
        let mut steps = steps.range(from..).map(|&place| (place, self.at(place)));
        for (_, row) in steps.by_ref().take(limit) {
            page.found.push((row.id.clone(), row.found(now_us)));
        }
        page.next = steps.next().map(|(place, _)| cursor::pack(&[u64::from(place)]));
        Ok(page)
    }
}

/// The place in `due` behind which a scan goes on.
fn listed_at(cursor: &Cursor) -> Result<(NonZeroU64, u32)> {
    let [due_us, place] = cursor::unpack(cursor)?;
    let due_us = NonZeroU64::new(due_us).ok_or_else(cursor::foreign)?;
    Ok((due_us, u32::try_from(place).map_err(|_| cursor::foreign())?))
}

fn next_place(cursor: &Cursor) -> Result<usize> {
    let [place] = cursor::unpack(cursor)?;
    Ok(usize::try_from(place).unwrap_or(usize::MAX))
}
