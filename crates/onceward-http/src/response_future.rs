//! The future of a response. Without a guard it is the inner service's own future, so that a request without a key
//! costs almost nothing.
//!
//! ```text
//! Pass                                  the inner service's future
//! Refused                               an answer from the request head alone
//! Reading ──▶ Running                   the body is read, then the intent is run
//!    └──────────▶ a cached answer
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::guard::{self, Begun};
use crate::intent_future::IntentFuture;
use crate::request_body::BodyReader;

pin_project_lite::pin_project! {
    /// What [`OncewardService`](crate::OncewardService) returns.
    ///
    /// If it is dropped while the body is being read, nothing has happened. If it is dropped later, nothing is
    /// cancelled: the intent continues in a task of its own. It must be polled; the intent stays claimed until it
    /// ends.
    pub struct ResponseFuture<S, I, B>
    where
        S: Service<Request<I>>,
    {
        #[pin]
        kind: FutureKind<S, I, B>,
    }
}

pin_project_lite::pin_project! {
    #[project = Projected]
    enum FutureKind<S, I, B>
    where
        S: Service<Request<I>>,
    {
        Pass { #[pin] future: S::Future },
        Refused { response: Option<Response<ResponseBody<B>>> },
        Reading { #[pin] reading: BodyReader<S, I> },
        Running { running: IntentFuture<B, S::Error> },
    }
}

impl<S, I, B> ResponseFuture<S, I, B>
where
    S: Service<Request<I>>,
{
    pub(crate) fn pass(future: S::Future) -> Self {
        Self { kind: FutureKind::Pass { future } }
    }

    pub(crate) fn refused(response: Response<ResponseBody<B>>) -> Self {
        Self { kind: FutureKind::Refused { response: Some(response) } }
    }

    pub(crate) fn reading(reading: BodyReader<S, I>) -> Self {
        Self { kind: FutureKind::Reading { reading } }
    }
}

impl<S, I, B> Future for ResponseFuture<S, I, B>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kind = self.project().kind;
        loop {
            let read = match kind.as_mut().project() {
                Projected::Pass { future } => {
                    return future.poll(cx).map_ok(|response| response.map(ResponseBody::inner));
                }
                Projected::Refused { response } => {
                    return Poll::Ready(Ok(response.take().expect("polled again after it was ready")));
                }
                Projected::Running { running } => return running.poll(cx),
                Projected::Reading { reading } => ready!(reading.poll(cx)),
            };
            match guard::begin(read) {
                Begun::Answered(answer) => return Poll::Ready(Ok(answer)),
                Begun::Passed(future) => kind.set(FutureKind::Pass { future }),
                Begun::Running(running) => kind.set(FutureKind::Running { running }),
            }
        }
    }
}
