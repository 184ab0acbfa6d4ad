//! The future of a response: the inner service's own where nothing is guarded, so that a request
//! without a key costs next to nothing.
//!
//! ```text
//! Pass                                  the inner service's future
//! Refused                               an answer that needed no more than the head
//! Reading ──▶ Running                   the body is read, then the intent is run
//!    └──────────▶ an answer at hand
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::guard::{self, Begun};
use crate::reading::Reading;
use crate::running::Running;

pin_project_lite::pin_project! {
    /// What [`OncewardService`](crate::OncewardService) returns.
    ///
    /// Dropping it while the body is being read leaves nothing behind. Dropping it later cancels nothing:
    /// the intent runs on in a task of its own. Whoever keeps it must poll it; the intent is held for as
    /// long.
    pub struct ResponseFuture<S, I, B>
    where
        S: Service<Request<I>>,
    {
        #[pin]
        kind: Kind<S, I, B>,
    }
}

pin_project_lite::pin_project! {
    #[project = Projected]
    enum Kind<S, I, B>
    where
        S: Service<Request<I>>,
    {
        Pass { #[pin] future: S::Future },
        Refused { response: Option<Response<ResponseBody<B>>> },
        Reading { #[pin] reading: Reading<S, I> },
        Running { running: Running<B, S::Error> },
    }
}

impl<S, I, B> ResponseFuture<S, I, B>
where
    S: Service<Request<I>>,
{
    pub(crate) fn pass(future: S::Future) -> Self {
        Self { kind: Kind::Pass { future } }
    }

    pub(crate) fn refused(response: Response<ResponseBody<B>>) -> Self {
        Self { kind: Kind::Refused { response: Some(response) } }
    }

    pub(crate) fn reading(reading: Reading<S, I>) -> Self {
        Self { kind: Kind::Reading { reading } }
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
                Begun::Running(running) => kind.set(Kind::Running { running }),
            }
        }
    }
}
