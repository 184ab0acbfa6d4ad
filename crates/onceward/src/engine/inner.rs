//! What all parts of one engine share, and the few things all of them do to the store.

use std::sync::Arc;
use std::time::Duration;

use super::cache::Cache;
use super::counts::Counters;
use super::flight::Flights;
use super::group::{Group, Swapping, Urgency};
use super::keeper::Keeper;
use super::limits::Limits;
use super::poller::Poller;
use super::sync::Mutex;
use crate::ask::Ask;
use crate::codec;
use crate::decide::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;
use crate::receipt::{Receipt, Status};
use crate::store::{Cursor, Found, Record, Seen, Store, Swap};
use crate::world::World;

/// The shape of [`decide`](crate::decide). The engine takes it as a value so that the judge can show
/// that wrong rules are caught.
pub type Rules = fn(&Ask, Option<&Receipt>) -> Decision;

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<Counters>,
    pub(crate) group: Arc<Group>,
    pub(crate) flights: Flights,
    pub(crate) cache: Cache,
    pub(crate) keeper: Keeper,
    pub(crate) poller: Poller,
    /// Where the next sweep goes on, if the last one did not come to the end.
    pub(crate) sweep_from: Mutex<Option<Cursor>>,
}

impl Inner {
    pub(crate) fn now(&self) -> Duration {
        self.world.now()
    }

    pub(crate) fn decide(&self, ask: &Ask, receipt: Option<&Receipt>) -> Decision {
        (self.rules)(ask, receipt)
    }

    /// Submits the change from what was seen to `status`, due after `due_in`; `None` removes.
    pub(crate) fn swap(
        &self,
        id: &Id,
        seen: Seen,
        new: Option<(Status, Option<Duration>)>,
        urgency: Urgency,
    ) -> Swapping {
        self.group.swap(change(id, seen, new), urgency)
    }

    /// Reads one receipt as it is now.
    pub(crate) async fn load(&self, id: &Id) -> Result<Option<Receipt>> {
        let mut found = self.load_all(std::slice::from_ref(id)).await?;
        found.pop().flatten().as_ref().map(codec::decode).transpose()
    }

    /// Reads records as they are now.
    pub(crate) async fn load_all(&self, ids: &[Id]) -> Result<Vec<Option<Found>>> {
        self.counters.store_loads.one();
        let found = self.store.load(ids).await.inspect_err(|_| self.counters.store_errors.one())?;
        if found.len() != ids.len() {
            let detail = format!("the store gave {} answers to {} ids", found.len(), ids.len());
            return Err(Error::new(ErrorKind::Damaged, detail));
        }
        Ok(found)
    }
}

/// The change from what was seen to a status, due after a while; `None` removes.
pub(crate) fn change(id: &Id, seen: Seen, new: Option<(Status, Option<Duration>)>) -> Swap {
    let new =
        new.map(|(status, due_in)| Record { state: status.state(), due_in, bytes: codec::encode(&status) });
    Swap { id: id.clone(), seen, new }
}
