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
        // Boxed: the future of a response is copied several times on its way to a task, also that of a request without a key.
        rest: Option<Box<WaitingRequest<S>>>,
    }
}

/// A guarded request before it is run, and the service that is to run it. It is large, and stays in its place until then.
pub(crate) struct WaitingRequest<S> {
    /// Until the request runs.
    pub(crate) in_flight: Option<InFlight>,
    /// `None` if the body says which intent it is.
    pub(crate) ids: Option<Ids>,
    pub(crate) service: S,
    pub(crate) parts: Parts,
    /// Once it was read.
    pub(crate) body: Bytes,
}

/// A request whose body was read, or was not, and why.
type Read<S> = (Box<WaitingRequest<S>>, Result<(), BodyError>);

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
        let in_flight = Some(in_flight);
        let waiting = WaitingRequest { in_flight, ids, service, parts, body: Bytes::new() };
        let rest = Some(Box::write(Box::new_uninit(), waiting));
        Self { body, collected: BodyBuffer::default(), rest }
    }

    /// Ready with the request and its body, or why that was not read.
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Read<S>> {
        const AGAIN: &str = "polled again after it was ready";
        let mut this = self.project();
        let in_flight = this.rest.as_mut().expect(AGAIN).in_flight.as_mut().expect("it does not run yet");
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
        let mut rest = this.rest.take().expect(AGAIN);
        let read = body.map(|body| rest.body = body);
        Poll::Ready((rest, read))
    }
}
