//! The body of a request or response inside the gateway: buffered, read from the client, or read from the service.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward_http::BoxError;

use super::client_body::ClientBody;
use super::direct_body::DirectBody;
use super::service_body::ServiceBody;

/// The body of a request or a response.
pub enum GatewayBody {
    /// It is buffered.
    Whole(Option<Bytes>),
    /// It is read from the client's connection.
    FromClient(ClientBody),
    /// It is read from a connection to the service that hyper drives.
    FromService(ServiceBody),
    /// It is read from a connection to the service that nobody else drives.
    FromDirect(DirectBody),
}

impl GatewayBody {
    /// The number of bytes, if the body is buffered.
    pub fn length(&self) -> Option<usize> {
        match self {
            Self::Whole(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len)),
            Self::FromClient(_) | Self::FromService(_) | Self::FromDirect(_) => None,
        }
    }
}

impl From<Bytes> for GatewayBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::FromClient(body) => body.poll_frame(cx),
            Self::FromService(body) => body.poll_frame(cx),
            Self::FromDirect(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::FromClient(body) => body.is_end_stream(),
            Self::FromService(body) => body.is_end_stream(),
            Self::FromDirect(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::FromClient(body) => body.size_hint(),
            Self::FromService(body) => body.size_hint(),
            Self::FromDirect(body) => body.size_hint(),
        }
    }
}
