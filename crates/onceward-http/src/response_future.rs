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
        rare: Option<Box<RareParts>>,
    }
}

/// What few requests have. In one box, because the future of every request is copied on its way to a task.
#[derive(Default)]
pub(crate) struct RareParts {
    page: Option<Page>,
    /// Of a request that is passed on, where its route sheds load.
    permit: Option<ShedPermit>,
}

impl RareParts {
    /// Of a request that a page has sent.
    pub(crate) fn page<I>(request: &Request<I>, allowed: Option<&AllowedOrigins>) -> Box<Self> {
        Box::new(Self { page: Some(Page::of(request, allowed)), permit: None })
    }

    /// Adds the permit of a request that is passed on, if it has one.
    pub(crate) fn add_permit(rare: &mut Option<Box<Self>>, permit: Option<ShedPermit>) {
        if permit.is_some() {
            rare.get_or_insert_default().permit = permit;
        }
    }

    /// The service has answered a request that was passed on.
    #[cold]
    fn answered<B>(&mut self, response: Response<ResponseBody<B>>) -> Response<ResponseBody<B>> {
        if let Some(permit) = self.permit.take() {
            permit.answered(response.status());
        }
        self.complete(response)
    }

    #[cold]
    fn complete<B>(&self, mut response: Response<ResponseBody<B>>) -> Response<ResponseBody<B>> {
        match &self.page {
            Some(page) => page.complete(response),
            None => {
                cors::forget_other_origin(response.headers_mut(), None);
                response
            }
        }
    }
}

/// The page that has sent a request, and the origins that the route allows. Nearly all requests come from no page.
struct Page {
    from: FromBrowser,
    allowed: Option<AllowedOrigins>,
}

impl Page {
    fn of<I>(request: &Request<I>, allowed: Option<&AllowedOrigins>) -> Self {
        Self { from: FromBrowser::of(request), allowed: allowed.cloned() }
    }

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
    pub(crate) fn pass(future: S::Future, rare: Option<Box<RareParts>>) -> Self {
        Self { kind: FutureKind::Pass { future }, rare }
    }

    pub(crate) fn refused(response: Response<ResponseBody<B>>, rare: Option<Box<RareParts>>) -> Self {
        Self { kind: FutureKind::Refused { response: Some(response) }, rare }
    }

    pub(crate) fn reading(reading: BodyReader<S, I>, rare: Option<Box<RareParts>>) -> Self {
        Self { kind: FutureKind::Reading { reading }, rare }
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
        let Projected::Pass { future } = this.kind.project() else { unreachable!("only what is passed on") };
        // A response is large: it is changed where it is, and moved once.
        let mut served = ready!(future.poll(cx));
        if let (Ok(response), None) = (&mut served, &this.rare) {
            // A service may replay by itself.
            cors::forget_other_origin(response.headers_mut(), None);
        }
        let served = served.map(|response| response.map(ResponseBody::inner));
        Poll::Ready(match this.rare {
            Some(rare) => served.map(|response| rare.answered(response)),
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
                Begun::Passed(future, permit) => {
                    RareParts::add_permit(this.rare, permit);
                    kind.set(FutureKind::Pass { future });
                }
                Begun::Running(running) => kind.set(FutureKind::Running { running }),
            }
        };
        if let Ok(response) = &mut answer {
            match this.rare {
                Some(rare) => return Poll::Ready(answer.map(|response| rare.complete(response))),
                None => cors::forget_other_origin(response.headers_mut(), None),
            }
        }
        Poll::Ready(answer)
    }
}
