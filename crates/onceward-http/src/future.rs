//! The future of a response: the inner service's own where nothing is guarded, so that a request
//! without a key costs next to nothing.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use crate::body::ResponseBody;

type Guarded<B, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, E>> + Send>>;

pin_project_lite::pin_project! {
    /// What [`OncewardService`](crate::OncewardService) returns.
    pub struct ResponseFuture<F, B, E> {
        #[pin]
        kind: Kind<F, B, E>,
    }
}

pin_project_lite::pin_project! {
    #[project = Projected]
    enum Kind<F, B, E> {
        Pass { #[pin] future: F },
        Guarded { future: Guarded<B, E> },
    }
}

impl<F, B, E> ResponseFuture<F, B, E> {
    pub(crate) fn pass(future: F) -> Self {
        Self { kind: Kind::Pass { future } }
    }

    pub(crate) fn guarded(future: Guarded<B, E>) -> Self {
        Self { kind: Kind::Guarded { future } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            Projected::Pass { future } => {
                future.poll(cx).map_ok(|response| response.map(ResponseBody::inner))
            }
            Projected::Guarded { future } => future.as_mut().poll(cx),
        }
    }
}
