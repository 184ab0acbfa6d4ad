//! A cache of the physical addresses (`ctid`) of rows that were claimed or taken, so that a completion needs no index lookup.
//!
//! Only a hint: rows move when the table is rewritten, and another row may take the address. So a statement that is
//! given a ctid still compares the id and the version, and a swap that finds nothing there is retried by its id.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, BytesMut};
use onceward::{Id, Seen, Swap, Version};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// The number of ctids that are kept. Most claims are completed within moments; those that never are must not
/// pile up.
const CTIDS_MAX: usize = 1 << 16;

type Fault = Box<dyn std::error::Error + Sync + Send>;

/// The address of a row in a table: a page, and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ctid {
    page: u32,
    number: u16,
}

impl<'a> FromSql<'a> for Ctid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        let (page, number) = raw.split_at_checked(4).ok_or("a ctid has six bytes")?;
        Ok(Self {
            page: u32::from_be_bytes(page.try_into()?),
            number: u16::from_be_bytes(number.try_into()?),
        })
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }
}

impl ToSql for Ctid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        out.put_u32(self.page);
        out.put_u16(self.number);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TID
    }

    to_sql_checked!();
}

/// The ctids of the rows that this process has claimed and not yet completed.
#[derive(Debug, Default)]
pub(super) struct CtidCache(Mutex<CtidsById>);

type CtidsById = HashMap<Id, (Version, Ctid)>;

impl CtidCache {
    pub(super) fn note(&self, claims: impl Iterator<Item = (Id, Version, Ctid)>) {
        let mut ctids = self.lock();
        for (id, version, ctid) in claims {
            if ctids.len() >= CTIDS_MAX {
                ctids.clear();
            }
            ctids.insert(id, (version, ctid));
        }
    }

    /// Of these swaps, those whose rows are known, with their ctids. Each is returned once.
    pub(super) fn take_known(&self, batch: &[Swap], of: &[usize]) -> (Vec<usize>, Vec<Ctid>) {
        let mut ctids = self.lock();
        of.iter().filter_map(|at| Some((*at, take(&mut ctids, &batch[*at])?))).unzip()
    }

    /// Takes the ctids of the rows that these swaps have seen, if all are known. Each is returned once: a swap that
    /// finds nothing there must not try it again.
    pub(super) fn take(&self, batch: &[Swap], of: &[usize]) -> Option<Vec<Ctid>> {
        let mut ctids = self.lock();
        let known: Vec<Option<Ctid>> = of.iter().map(|at| take(&mut ctids, &batch[*at])).collect();
        known.into_iter().collect()
    }

    /// The same of a single swap.
    pub(super) fn take_one(&self, swap: &Swap) -> Option<Ctid> {
        take(&mut self.lock(), swap)
    }

    fn lock(&self) -> MutexGuard<'_, CtidsById> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(ctids: &mut CtidsById, swap: &Swap) -> Option<Ctid> {
    let (version, ctid) = ctids.remove(&swap.id)?;
    (swap.seen == Seen::Version(version)).then_some(ctid)
}
