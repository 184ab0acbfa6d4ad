//! TLS to the endpoint. The certificate is always verified; there is no option to skip that.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{Error, Result};
use super::volley::HttpVersion;
use super::wire::Wire;

/// Whom we believe: the authorities that the system trusts, and those of a file. Read when first needed.
#[derive(Debug, Default)]
pub struct Trust {
    authorities: Option<PathBuf>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl Trust {
    /// The system's authorities, and those of this file (PEM).
    pub fn new(authorities: Option<PathBuf>) -> Self {
        Self { authorities, config: OnceLock::new() }
    }

    /// How a host is reached that must prove to be this one.
    pub(super) fn peer(&self, host: &str) -> Result<Peer> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::invalid(format!("`{host}` is no name that a certificate could be for")))?;
        let config = match self.config.get() {
            Some(config) => config.clone(),
            None => {
                let config = Arc::new(self.config()?);
                self.config.get_or_init(|| config).clone()
            }
        };
        Ok(Peer { name, config })
    }

    fn config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        // SSL_CERT_FILE and SSL_CERT_DIR count, too.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &self.authorities {
            let wrong =
                |error: &dyn std::fmt::Display| Error::invalid(format!("{}: {error}", path.display()));
            let before = roots.len();
            for authority in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                let authority = authority.map_err(|error| wrong(&error))?;
                roots.add(authority).map_err(|error| wrong(&error))?;
            }
            if roots.len() == before {
                return Err(wrong(&"there is no certificate in it"));
            }
        }
        if roots.is_empty() {
            return Err(Error::invalid(
                "this system trusts no certificate authorities: install ca-certificates, or name one with --ca",
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has all that these versions need");
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Who must answer, and whom we believe in that.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Peer {
    pub(super) async fn connect(&self, stream: TcpStream, version: HttpVersion) -> io::Result<Box<dyn Wire>> {
        let protocol: &[u8] = match version {
            HttpVersion::Http1 => b"http/1.1",
            HttpVersion::Http2 => b"h2",
        };
        let connector = TlsConnector::from(self.config.clone());
        let connecting = connector.with_alpn(vec![protocol.to_vec()]).connect(self.name.clone(), stream);
        let stream = connecting.await.map_err(unbelievable)?;
        // Old servers choose none, and then speak HTTP/1.1.
        if version == HttpVersion::Http2 && stream.get_ref().1.alpn_protocol() != Some(protocol) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it does not speak HTTP/2 under TLS"));
        }
        Ok(Box::new(stream))
    }
}

impl Wire for TlsStream<TcpStream> {
    fn seal(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let session = self.get_mut().1;
        session.writer().write_all(bytes)?;
        let mut sealed = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut sealed)?;
        }
        Ok(sealed)
    }

    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Says what can be done about a certificate that was not believed.
fn unbelievable(error: io::Error) -> io::Error {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match reason {
        Some(rustls::Error::InvalidCertificate(why)) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("its certificate is not believed ({why}); an authority of one's own is named with --ca"),
        ),
        _ => error,
    }
}

#[cfg(all(test, feature = "zoo"))]
#[path = "tls_test.rs"]
mod tests;
