//! Reads on for a moment in a body that nobody wants any more.
//!
//! Over HTTP/2, a stream whose body is dropped before its end is reset after its answer. RFC 9113 allows that and asks
//! clients to keep the answer, but a client that finds the stream closed while it still sends may lose it: curl 7.88 fails
//! with a framing error instead of showing a refusal. So what is left of a short body is read and thrown away while the
//! answer is sent. HTTP/1.1 needs nothing of it: there the body would have to be asked for (`100 Continue`).

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Handle;

/// A longer rest is not worth it: its stream is reset.
const BYTES_MAX: usize = 64 << 10;
/// So is one that comes this slowly.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Reads to the end of the body, or to a bound.
pub fn drain(mut body: Incoming) {
    // Outside of a runtime the process is ending.
    let Ok(runtime) = Handle::try_current() else { return };
    runtime.spawn(tokio::time::timeout(TIME_MAX, async move {
        let mut bytes = 0;
        while bytes < BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
        }
    }));
}
