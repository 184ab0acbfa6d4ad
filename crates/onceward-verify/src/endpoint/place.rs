//! Where requests go: a parsed URL, and whether its host is plainly one's own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;

use super::error::{Error, Result};

/// A connection that is not there by then will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An `http` URL, taken apart once.
#[derive(Clone, Debug)]
pub struct Place {
    text: String,
    host: String,
    port: u16,
    target: String,
    /// The address that answered first: a name is looked up once, not for each of a thousand clients.
    address: Arc<OnceLock<SocketAddr>>,
}

impl Place {
    /// Reads a URL such as `http://127.0.0.1:3000/charges`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::invalid(format!("`{text}` is not a URL to verify: {why}"));
        let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(wrong("TLS hides the last byte; verify the endpoint behind its terminator"));
            }
            _ => return Err(wrong("it must begin with http://")),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(Self {
            text: text.to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(80),
            target: target.to_owned(),
            address: Arc::default(),
        })
    }

    /// The URL as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The value of the `Host` field.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 80 { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether nobody else can be meant: a loopback or private address, or a name without a dot, which
    /// only resolves inside one's own network.
    pub fn is_own(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
            Err(_) => !self.host.contains('.') || self.host.to_ascii_lowercase().ends_with(".localhost"),
        }
    }

    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let connect = async {
            match self.address.get() {
                Some(address) => TcpStream::connect(address).await,
                None => TcpStream::connect((self.host.as_str(), self.port)).await,
            }
        };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no connection in ten seconds"))??;
        if let Ok(address) = stream.peer_addr() {
            self.address.get_or_init(|| address);
        }
        // The last byte must leave at once, not wait for the acknowledgement of what went before it.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

#[cfg(test)]
#[path = "place_test.rs"]
mod tests;
