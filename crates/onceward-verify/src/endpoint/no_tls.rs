//! Replaces `tls` in a build without it: an `https` URL is refused.

use std::io;
use std::path::PathBuf;

use tokio::net::TcpStream;

use super::error::{Error, Result};
use super::volley::HttpVersion;
use super::wire::Wire;

/// Whom we believe: nobody.
#[derive(Debug, Default)]
pub struct Trust;

impl Trust {
    /// Authorities are of no use here.
    pub fn new(_: Option<PathBuf>) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as in `tls`")]
    pub(super) fn peer(&self, _: &str) -> Result<Peer> {
        Err(Error::invalid("this build speaks no TLS: it needs the feature `tls` of onceward-verify"))
    }
}

/// There is none.
#[derive(Clone, Debug)]
pub(super) enum Peer {}

impl Peer {
    #[expect(clippy::unused_async, reason = "as in `tls`")]
    pub(super) async fn connect(&self, _: TcpStream, _: HttpVersion) -> io::Result<Box<dyn Wire>> {
        match *self {}
    }
}
