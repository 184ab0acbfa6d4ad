//! A connection to the endpoint, plain or TLS. Bytes can be prepared on it and sent later in one write.

use std::fmt::Debug;
use std::io;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection.
pub(super) trait Wire: AsyncRead + AsyncWrite + Debug + Send + Unpin {
    /// What these bytes are on the socket. Nothing else may be written before they have left.
    fn seal(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>>;

    /// The socket below.
    fn socket(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn seal(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }

    fn socket(&self) -> &TcpStream {
        self
    }
}

/// Sends what was sealed, without waiting for anything. Says when.
pub(super) fn release(wire: &dyn Wire, sealed: &[u8]) -> io::Result<Instant> {
    let at = Instant::now();
    match wire.socket().try_write(sealed)? {
        sent if sent == sealed.len() => Ok(at),
        _ => Err(io::Error::new(io::ErrorKind::WriteZero, "the last bytes did not leave in one piece")),
    }
}
