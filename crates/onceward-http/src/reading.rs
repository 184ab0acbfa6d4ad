//! The first part of a guarded request: its body is read, up to a bound. Nothing has happened yet, and
//! dropping it leaves nothing behind.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http::request::Parts;
use http_body::Body;

use crate::collect::Collected;
use crate::guard::Ticket;
use crate::rotation::Ids;

pin_project_lite::pin_project! {
    pub(crate) struct Reading<S, I> {
        #[pin]
        body: I,
        collected: Collected,
        bytes_max: usize,
        rest: Option<Rest<S>>,
    }
}

/// All of a guarded request but its body.
pub(crate) struct Rest<S> {
    pub(crate) ticket: Ticket,
    pub(crate) service: S,
    pub(crate) parts: Parts,
    pub(crate) ids: Ids,
}

/// A guarded request once its body was read, or could not be.
pub(crate) struct Read<S> {
    pub(crate) rest: Rest<S>,
    pub(crate) body: Result<Bytes, Unread>,
}

/// Why a body was not read to its end.
pub(crate) enum Unread {
    TooLarge,
    /// Too many bodies are in memory already.
    NoRoom,
    Broken,
}

impl<S, I: Body<Data = Bytes>> Reading<S, I> {
    pub(crate) fn new(ticket: Ticket, service: S, request: Request<I>, ids: Ids) -> Self {
        let bytes_max = ticket.route().request_bytes_max;
        let (parts, body) = request.into_parts();
        let rest = Some(Rest { ticket, service, parts, ids });
        Self { body, collected: Collected::default(), bytes_max, rest }
    }

    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Read<S>> {
        let mut this = self.project();
        let body = loop {
            // Whoever says beforehand that it is too large need not send it.
            let announced = this.body.size_hint().lower();
            if this.collected.len() as u64 + announced > *this.bytes_max as u64 {
                break Err(Unread::TooLarge);
            }
            match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers say nothing about the intent.
                    let Ok(data) = frame.into_data() else { continue };
                    if this.collected.len() + data.len() > *this.bytes_max {
                        break Err(Unread::TooLarge);
                    }
                    let rest = this.rest.as_mut().expect("polled again after it was ready");
                    if !rest.ticket.take_bytes(data.len()) {
                        break Err(Unread::NoRoom);
                    }
                    this.collected.push(data);
                }
                Some(Err(_)) => break Err(Unread::Broken),
                None => break Ok(std::mem::take(this.collected).into_bytes()),
            }
        };
        let rest = this.rest.take().expect("polled again after it was ready");
        Poll::Ready(Read { rest, body })
    }
}
