//! Commits the receipt of a request in the transaction of its handler, together with the handler's own writes. A
//! crash leaves both or neither.
//!
//! ```text
//! layer: claim ─▶ handler: begin ─▶ business writes ─▶ receipt ─▶ commit ─▶ layer: sends what was committed
//! ```

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use onceward::{Completed, ErrorKind, Lease, Recorded, Result, Stopped, Transactions};

use crate::action::Action;
use crate::body::BoxError;
use crate::layer::LayerState;
use crate::response_action::ResponseHead;
use crate::{response_outcome, snapshot};

/// The [`Lease`] of a run on a route that is built
/// [`with_effects_in_transaction`](crate::RouteBuilder::with_effects_in_transaction): it commits the
/// response with the handler's own writes. It is among the extensions of the request.
///
/// ```
/// # use axum::{Extension, response::{IntoResponse, Response}, http::StatusCode};
/// # use onceward::Transactions; use onceward_http::ResponseLease;
/// async fn charge<T: Transactions>(pool: T, Extension(lease): Extension<ResponseLease>) -> Response {
///     let committed = lease.transact(&pool, async |_tx| {
///         // … insert the charge through `_tx` …
///         Ok((StatusCode::CREATED, "charged").into_response())
///     });
///     match committed.await {
///         Ok(response) => response.into_response(),
///         Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct ResponseLease {
    lease: Lease,
    shared: Arc<LayerState>,
    /// The response of the last transaction.
    made: Arc<Mutex<Option<Response<Bytes>>>>,
}

impl ResponseLease {
    pub(crate) fn new(lease: Lease, shared: &Arc<LayerState>) -> Self {
        Self { lease, shared: shared.clone(), made: Arc::default() }
    }

    /// Runs `work` in a transaction, and commits the response that it returns with what it has written. That response
    /// is stored, and it is what the client gets, whatever the handler returns afterwards; return the one that this
    /// gives.
    ///
    /// * A response that frees the key by the route's table (a 503, for one) rolls everything back, and is given to
    ///   be returned: nothing is stored.
    /// * So does an error of the work; it is then given as an error of the kind
    ///   [`Stopped`](onceward::ErrorKind::Stopped).
    /// * Otherwise as [`Lease::transact`]: a run that was taken over commits nothing, and the work may be done more
    ///   than once if the database undoes it.
    pub async fn transact<T, F, W, B>(&self, transactions: &T, mut work: F) -> Result<Response<Full<Bytes>>>
    where
        T: Transactions,
        F: FnMut(T::Tx) -> W,
        W: Future<Output = Result<Response<B>, Stopped>>,
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let ran = self.lease.transact(transactions, |tx| {
            let working = work(tx);
            async move {
                *self.made() = None;
                let response = whole(working.await?).await?;
                let action = self.action(&response);
                let outcome = response_outcome::outcome(&self.shared.route, &response);
                *self.made() = Some(response);
                match action {
                    Action::Replay => Ok(outcome),
                    Action::Retry | Action::Unknown => {
                        Err(Stopped::before_effect("the response is none that is kept"))
                    }
                }
            }
        });
        match ran.await {
            Ok(Completed { recorded: Recorded::Yes | Recorded::NotYet, .. }) => {
                let made = self.made().clone();
                Ok(made.expect("it was committed").map(Full::new))
            }
            Ok(Completed { recorded: Recorded::Released, .. }) => {
                Ok(self.made().take().expect("the work has returned it").map(Full::new))
            }
            Err(error) => match self.made().take() {
                Some(response) if error.kind() == ErrorKind::Stopped => Ok(response.map(Full::new)),
                _ => Err(error),
            },
        }
    }

    /// What was committed, to be sent.
    pub(crate) fn committed(&self) -> Option<(Completed, Option<Response<Bytes>>)> {
        let ran = self.lease.committed()?;
        // Without one, the handler has encoded the response itself.
        let response = self.made().take().or_else(|| snapshot::decode(ran.outcome.body()));
        Some((ran, response))
    }

    fn action(&self, response: &Response<Bytes>) -> Action {
        let (status, headers, extensions) = (response.status(), response.headers(), response.extensions());
        let head = ResponseHead { status, headers, extensions };
        head.action(&self.shared.route, self.lease.prior(), Some(response.body()))
    }

    fn made(&self) -> MutexGuard<'_, Option<Response<Bytes>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for ResponseLease {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl std::fmt::Debug for ResponseLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lease.fmt(f)
    }
}

/// The response with its whole body: what is committed must be complete.
async fn whole<B>(response: Response<B>) -> Result<Response<Bytes>, Stopped>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| Stopped::before_effect(error.into()))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}
