//! Scans of the memory store, one page at a time; each kind of scan reads its own index.

use std::num::NonZeroU64;

use onceward::{Cursor, Filter, Id, Page, Result, Scan, ScanTarget, State};

use super::{BLOCK_ROWS, DUE_LISTS, DueList, Rows, list_of, live_of};
use crate::kit::{self, cursor};
use crate::memory::due_queue::DueEntry;

/// A scan may move this many stale entries for each record it may return.
const MOVES_PER_RECORD_MAX: usize = 8;

impl Rows {
    /// One page. It takes `&mut` because it moves the stale entries that it reads.
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
        let mut after = after.map(listed_at).transpose()?;
        // A row that is done may still have the entry of its lease.
        let lists: &[DueList] = match state.map(list_of) {
            None => &DUE_LISTS,
            Some(DueList::Waiting) => &[DueList::Waiting],
            Some(DueList::Held) => &[DueList::Held],
            Some(DueList::Rest) => &[DueList::Held, DueList::Rest],
        };
        let (mut page, mut looked_at) = (Page::default(), 0);
        for _ in 0..limit * MOVES_PER_RECORD_MAX {
            let next = lists.iter().filter_map(|list| self.due[*list as usize].first_after(after)).min();
            let Some((due_us, slot)) = next.filter(|(due_us, _)| due_us.get() <= now_us) else {
                return Ok(page);
            };
            after = Some((due_us, slot));
            let row = self.at(slot);
            if row.due_us != Some(due_us) || row.listed_in != list_of(row.state) {
                self.list(slot);
                // Moved to a later entry, or to the same time in another list.
                if self.at(slot).due_us != Some(due_us) {
                    continue;
                }
            }
            let row = self.at(slot);
            if state.is_none_or(|state| row.state == state) {
                page.found.push((row.id.clone(), row.found(now_us)));
            }
            looked_at += 1;
            if looked_at == limit {
                break;
            }
        }
        if let Some((due_us, slot)) = after {
            page.next = Some(cursor::pack(&[due_us.get(), u64::from(slot)]));
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
        let mut at = after.map(next_slot).transpose()?.unwrap_or(0);
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
            None => (from < self.slots()).then_some(from),
        };
        for _ in 0..limit {
            let Some(slot) = next_from(at) else { return Ok(page) };
            at = slot + 1;
            if let Some(row) = &self.blocks[slot / BLOCK_ROWS][slot % BLOCK_ROWS]
                && filter.matches(&row.id, row.state)
            {
                page.found.push((row.id.clone(), row.found(now_us)));
            }
        }
        page.next = next_from(at).map(|_| cursor::pack(&[at as u64]));
        Ok(page)
    }

    fn scan_steps(&self, parent: &Id, after: Option<&Cursor>, limit: usize, now_us: u64) -> Result<Page> {
        let from = after.map(next_slot).transpose()?.unwrap_or(0);
        let mut page = Page::default();
        let Some((steps, from)) = self.steps.get(parent).zip(u32::try_from(from).ok()) else {
            return Ok(page);
        };
        let mut steps = steps.range(from..).map(|&slot| (slot, self.at(slot)));
        for (_, row) in steps.by_ref().take(limit) {
            page.found.push((row.id.clone(), row.found(now_us)));
        }
        page.next = steps.next().map(|(slot, _)| cursor::pack(&[u64::from(slot)]));
        Ok(page)
    }
}

/// The entry of `due` after which a scan resumes.
fn listed_at(cursor: &Cursor) -> Result<DueEntry> {
    let [due_us, slot] = cursor::unpack(cursor)?;
    let due_us = NonZeroU64::new(due_us).ok_or_else(cursor::foreign)?;
    Ok((due_us, u32::try_from(slot).map_err(|_| cursor::foreign())?))
}

fn next_slot(cursor: &Cursor) -> Result<usize> {
    let [slot] = cursor::unpack(cursor)?;
    Ok(usize::try_from(slot).unwrap_or(usize::MAX))
}
