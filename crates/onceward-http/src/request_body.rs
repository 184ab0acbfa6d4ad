//! Reads the body of a guarded request up to a limit, the first part of a guarded request. Nothing is claimed yet, so
//! it can be dropped without consequences.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body::Body;

use crate::body_buffer::BodyBuffer;
use crate::guard::InFlight;
use crate::problem::Problem;
use crate::secret_rotation::Ids;

pin_project_lite::pin_project! {
    pub(crate) struct BodyReader<S, I> {
        #[pin]
        body: I,
        collected: BodyBuffer,
        rest: Option<RequestRest<S>>,
    }
}

/// A guarded request without its body.
pub(crate) struct RequestRest<S> {
    pub(crate) in_flight: InFlight,
    pub(crate) service: S,
    pub(crate) parts: Parts,
    /// `None` if the body says which intent it is.
    pub(crate) ids: Option<Ids>,
}

/// A guarded request once its body was read, or could not be.
pub(crate) struct ReadRequest<S> {
    pub(crate) rest: RequestRest<S>,
    pub(crate) body: Result<Bytes, BodyError>,
}

/// Why a body was not read to its end.
pub(crate) enum BodyError {
    TooLarge,
    /// Too many bodies are in memory already, in all or of this client.
    NoMemory(Problem),
    Broken,
}

impl<S, I: Body<Data = Bytes>> BodyReader<S, I> {
    pub(crate) fn new(in_flight: InFlight, service: S, request: Request<I>, ids: Option<Ids>) -> Self {
        let (parts, body) = request.into_parts();
        let rest = Some(RequestRest { in_flight, service, parts, ids });
        Self { body, collected: BodyBuffer::default(), rest }
    }

    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ReadRequest<S>> {
        let mut this = self.project();
        let in_flight = &mut this.rest.as_mut().expect("polled again after it was ready").in_flight;
        let bytes_max = in_flight.route().request_bytes_max;
        let body = loop {
            // A body that is announced as too large is refused before it is read.
            let announced = this.body.size_hint().lower();
            if this.collected.len() as u64 + announced > bytes_max as u64 {
                break Err(BodyError::TooLarge);
            }
            match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers say nothing about the intent.
                    let Ok(data) = frame.into_data() else { continue };
                    if this.collected.len() + data.len() > bytes_max {
                        break Err(BodyError::TooLarge);
                    }
                    if let Err(problem) = in_flight.take_bytes(data.len()) {
                        break Err(BodyError::NoMemory(problem));
                    }
                    this.collected.push(data);
                }
                Some(Err(_)) => break Err(BodyError::Broken),
                None => break Ok(std::mem::take(this.collected).into_bytes()),
            }
        };
        let rest = this.rest.take().expect("polled again after it was ready");
        Poll::Ready(ReadRequest { rest, body })
    }
}
