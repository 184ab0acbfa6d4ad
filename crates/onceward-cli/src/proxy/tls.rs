//! TLS to an https upstream, and TLS from clients, with or without client certificates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream as ToStream;
use tokio_rustls::server::TlsStream as FromStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::callers::CertificateSubject;
use super::upstream_stream::UpstreamStream;

/// TLS to the upstream.
#[derive(Clone)]
pub struct UpstreamTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl UpstreamTls {
    /// The upstream must show a certificate for `host` from an authority that the system trusts.
    pub fn new(host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("`{host}` is not a name that a certificate can be for"))?;
        let mut roots = RootCertStore::empty();
        // SSL_CERT_FILE and SSL_CERT_DIR are honoured, so a private authority can be added.
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err("no certificate authorities were found on this system, so no https upstream can be \
                        trusted; install ca-certificates, or set SSL_CERT_FILE"
                .into());
        }
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub async fn connect(&self, stream: UpstreamStream) -> io::Result<ToStream<UpstreamStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

/// TLS from clients.
pub struct ClientTls {
    files: TlsFiles,
    /// Replaced when the files change; a handshake continues with what it began with.
    current: ArcSwap<LoadedFiles>,
}

/// What the files said when they were last read.
struct LoadedFiles {
    config: Arc<ServerConfig>,
    /// Of client certificates, if clients must present one.
    authorities: Option<Arc<RootCertStore>>,
}

/// The files for TLS from clients.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_authorities: Option<PathBuf>,
}

impl ClientTls {
    pub fn new(files: TlsFiles) -> Result<Self, String> {
        Ok(Self { current: ArcSwap::from_pointee(files.read()?), files })
    }

    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Reads the files again. If they are not valid, nothing changes.
    pub fn reload(&self) -> Result<(), String> {
        self.current.store(Arc::new(self.files.read()?));
        Ok(())
    }

    /// Returns whether clients must present a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.files.client_authorities.is_some()
    }

    /// The stream, and the identity in the client certificate where clients must present one. A client whose identity
    /// cannot be read is refused: it must not pass as one without a certificate.
    pub async fn accept<S>(&self, stream: S) -> io::Result<(FromStream<S>, Option<CertificateSubject>)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let current = self.current.load_full();
        let stream = TlsAcceptor::from(current.config.clone()).accept(stream).await?;
        let subject = match &current.authorities {
            None => None,
            Some(authorities) => Some(identity(stream.get_ref().1.peer_certificates(), authorities)?),
        };
        Ok((stream, subject))
    }
}

impl TlsFiles {
    /// All of them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_authorities).map(PathBuf::as_path)
    }

    fn read(&self) -> Result<LoadedFiles, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| format!("{}: {error}", self.key.display()))?;
        let mut authorities = None;
        let builder = match &self.client_authorities {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| format!("{}: {error}", path.display()))?;
                }
                let roots = Arc::new(roots);
                authorities = Some(roots.clone());
                let verifier = WebPkiClientVerifier::builder(roots)
                    .build()
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("{}: {error}", self.certificate.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(LoadedFiles { config: Arc::new(config), authorities })
    }
}

fn identity(
    shown: Option<&[CertificateDer<'_>]>,
    authorities: &RootCertStore,
) -> io::Result<CertificateSubject> {
    let identity = shown.and_then(|chain| CertificateSubject::of(chain, authorities));
    identity.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the client certificate does not pass"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?.collect();
    match read {
        Ok(chain) if chain.is_empty() => Err(wrong(&"the file has no certificate")),
        Ok(chain) => Ok(chain),
        Err(error) => Err(wrong(&error)),
    }
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
