//! Decides whether a request may run: before its claim, which is cheap, and again once it is claimed. The permits of a
//! run are held until it ends.

use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use onceward::Id;

use crate::admission::{Admission, ChargedKey, ClientAddress, NewKeyRefusal, RunPermit};
use crate::layer::LayerState;
use crate::problem::Problem;
use crate::shedding::{ShedPermit, Try};

/// The permits of one run: the bounds of the process and, where the route sheds load, its own.
pub(crate) struct Permits<'a> {
    _run: RunPermit<'a>,
    shed: Option<ShedPermit>,
    /// Whom its key is charged to, if that is bounded.
    key: Option<(&'a Admission, Box<ChargedKey>)>,
}

impl<'a> Permits<'a> {
    /// Its key is a new one. It is charged to the caller if that is bounded.
    pub(crate) fn begin_key(
        &mut self,
        shared: &'a LayerState,
        id: &Id,
        request: Option<&Parts>,
    ) -> Result<(), Problem> {
        let charged = shared.admission.begin_key(id, client_of(request))?;
        self.key = charged.map(|charged| (&*shared.admission, charged));
        Ok(())
    }

    /// Its key is free again.
    pub(crate) fn key_freed(&mut self) {
        if let Some((admission, charged)) = self.key.take() {
            admission.give_key(&charged);
        }
    }

    /// The service has answered.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(permit) = &self.shed {
            permit.answered(status);
        }
    }
}

/// Whether this request may run if it has no answer yet. This reserves nothing.
pub(crate) fn check(shared: &LayerState, id: &Id, request: Option<&Parts>) -> Result<(), Problem> {
    if let Some(request) = request {
        shared.route.precondition.check(&request.method, &request.headers)?;
        if let Some(shedder) = &shared.route.shedder {
            shedder.check(id, Try::of(&request.headers))?;
        }
    }
    shared.admission.check(id, client_of(request))
}

/// Counts one more run until the permits are dropped. Few are refused here: only those that came while others were being
/// claimed.
pub(crate) fn enter<'a>(
    shared: &'a LayerState,
    id: &Id,
    request: Option<&Parts>,
) -> Result<Permits<'a>, Problem> {
    let run = shared.admission.enter(id, client_of(request))?;
    let shed = match (&shared.route.shedder, request) {
        (Some(shedder), Some(request)) => Some(shedder.enter(id, Try::of(&request.headers))?),
        _ => None,
    };
    Ok(Permits { _run: run, shed, key: None })
}

/// Whether this request may begin a new key. This takes nothing.
#[inline]
pub(crate) fn check_new_key<'a>(
    shared: &'a LayerState,
    id: &Id,
    request: Option<&Parts>,
) -> Result<(), NewKeyRefusal<'a>> {
    shared.admission.check_new_key(id, client_of(request))
}

/// Whether a request without a key may be carried out, and its permit where the route sheds load. There is no receipt that
/// could come first.
pub(crate) fn enter_keyless(
    shared: &LayerState,
    method: &Method,
    headers: &HeaderMap,
    scope: impl FnOnce() -> Option<Id>,
) -> Result<Option<ShedPermit>, Problem> {
    shared.route.precondition.check(method, headers)?;
    let Some(shedder) = &shared.route.shedder else { return Ok(None) };
    if !shared.route.methods.contains(method) {
        return Ok(None);
    }
    // Callers that cannot be named share what is left for one.
    let Some(id) = scope().or_else(|| Id::new("anonymous", "keyless", KEYLESS).ok()) else { return Ok(None) };
    shedder.enter(&id, Try::of(headers)).map(Some)
}

/// In the place of a key, where only the scope matters.
pub(crate) const KEYLESS: &str = "none";

fn client_of(request: Option<&Parts>) -> Option<ClientAddress> {
    request?.extensions.get().copied()
}
