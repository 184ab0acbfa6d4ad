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
use crate::cors::{self, AllowedOrigins, FromBrowser};
use crate::guard::{self, Begun};
use crate::intent_future::IntentFuture;
use crate::request_body::BodyReader;
use crate::shedding::ShedPermit;

pin_project_lite::pin_project! {
    /// The future that [`OncewardService`](crate::OncewardService) returns.
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
        page: Option<Box<Page>>,
    }
}

/// The page that has sent a request, and the origins that the route allows. Nearly all requests come from no page.
pub(crate) struct Page {
    from: FromBrowser,
    allowed: Option<AllowedOrigins>,
}

impl Page {
    pub(crate) fn of<I>(request: &Request<I>, allowed: Option<&AllowedOrigins>) -> Self {
        Self { from: FromBrowser::of(request), allowed: allowed.cloned() }
    }

    #[cold]
    fn complete<B>(&self, response: Response<ResponseBody<B>>) -> Response<ResponseBody<B>> {
        self.from.complete(self.allowed.as_ref(), response, || ResponseBody::whole(Bytes::new()))
    }
}

pin_project_lite::pin_project! {
    #[project = Projected]
    enum FutureKind<S, I, B>
    where
        S: Service<Request<I>>,
    {
        Pass { #[pin] future: S::Future, permit: Option<Box<ShedPermit>> },
        Refused { response: Option<Response<ResponseBody<B>>> },
        Reading { #[pin] reading: BodyReader<S, I> },
        Running { running: IntentFuture<B, S::Error> },
    }
}

impl<S, I, B> ResponseFuture<S, I, B>
where
    S: Service<Request<I>>,
{
    pub(crate) fn pass(future: S::Future, permit: Option<Box<ShedPermit>>, page: Option<Box<Page>>) -> Self {
        Self { kind: FutureKind::Pass { future, permit }, page }
    }

    pub(crate) fn refused(response: Response<ResponseBody<B>>, page: Option<Box<Page>>) -> Self {
        Self { kind: FutureKind::Refused { response: Some(response) }, page }
    }

    pub(crate) fn reading(reading: BodyReader<S, I>, page: Option<Box<Page>>) -> Self {
        Self { kind: FutureKind::Reading { reading }, page }
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
        match self.kind {
            FutureKind::Pass { .. } => self.poll_passed(cx),
            _ => self.poll_guarded(cx),
        }
    }
}

impl<S, I, B> ResponseFuture<S, I, B>
where
    S: Service<Request<I>, Response = Response<B>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    I: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    #[inline]
    fn poll_passed(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<<Self as Future>::Output> {
        let this = self.project();
        let Projected::Pass { future, permit } = this.kind.project() else {
            unreachable!("only what is passed on")
        };
        // A response is large: it is changed where it is, and moved once.
        let mut served = ready!(future.poll(cx));
        if let Ok(response) = &mut served {
            if let Some(permit) = permit.take() {
                permit.answered(response.status());
            }
            if this.page.is_none() {
                // A service may replay by itself.
                cors::forget_other_origin(response.headers_mut(), None);
            }
        }
        let served = served.map(|response| response.map(ResponseBody::inner));
        Poll::Ready(match this.page {
            Some(page) => served.map(|response| page.complete(response)),
            None => served,
        })
    }

    /// A function of its own, which a request that is passed on at once does not pay for.
    #[inline(never)]
    fn poll_guarded(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<<Self as Future>::Output> {
        let this = self.as_mut().project();
        let mut kind = this.kind;
        let mut answer = loop {
            let (waiting, read) = match kind.as_mut().project() {
                // It turned out to have no key.
                Projected::Pass { .. } => return self.poll_passed(cx),
                Projected::Refused { response } => {
                    break Ok(response.take().expect("polled again after it was ready"));
                }
                Projected::Running { running } => break ready!(running.poll(cx)),
                Projected::Reading { reading } => ready!(reading.poll(cx)),
            };
            match guard::begin(waiting, read) {
                Begun::Answered(answer) => break Ok(answer),
                Begun::Passed(future, permit) => kind.set(FutureKind::Pass { future, permit }),
                Begun::Running(running) => kind.set(FutureKind::Running { running }),
            }
        };
        if let Ok(response) = &mut answer {
            match this.page {
                Some(page) => return Poll::Ready(answer.map(|response| page.complete(response))),
                None => cors::forget_other_origin(response.headers_mut(), None),
            }
        }
        Poll::Ready(answer)
    }
}
