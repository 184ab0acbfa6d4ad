//! TLS to an https upstream, and TLS from clients, with or without client certificates.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream as ToStream;
use tokio_rustls::server::TlsStream as FromStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::callers::CertificateSubject;

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

    pub async fn connect(&self, stream: TcpStream) -> io::Result<ToStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

/// TLS from clients.
#[derive(Clone)]
pub struct ClientTls {
    acceptor: TlsAcceptor,
    asks_for_certificates: bool,
}

/// The files for TLS from clients.
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_authorities: Option<PathBuf>,
}

impl ClientTls {
    pub fn new(files: &TlsFiles) -> Result<Self, String> {
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| format!("{}: {error}", files.key.display()))?;
        let builder = match &files.client_authorities {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|error| format!("{}: {error}", path.display()))?;
                }
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                    .build()
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("{}: {error}", files.certificate.display()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let asks_for_certificates = files.client_authorities.is_some();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), asks_for_certificates })
    }

    /// Whether clients must present a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    /// The stream, and the subject of the client certificate, if there is one.
    pub async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(FromStream<TcpStream>, Option<CertificateSubject>)> {
        let stream = self.acceptor.accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates();
        let subject = shown.and_then(|chain| chain.first()).and_then(CertificateSubject::of);
        Ok((stream, subject))
    }
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
