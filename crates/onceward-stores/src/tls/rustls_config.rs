//! The rustls configuration of a connection to a database.

use std::path::Path;
use std::sync::Arc;

use onceward::{Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::{SslMode, TlsSettings, invalid};

impl TlsSettings {
    /// The configuration for this mode. Files that cannot be read are named.
    pub(crate) fn client_config(&self, mode: SslMode) -> Result<Arc<ClientConfig>> {
        // The one of the process, if it has chosen one.
        let provider = CryptoProvider::get_default()
            .map_or_else(|| Arc::new(rustls::crypto::ring::default_provider()), Arc::clone);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS cannot be used").caused_by(error))?;
        // As PostgreSQL's own clients do it: an authority that is given counts.
        let builder = if mode >= SslMode::VerifyCa || (mode == SslMode::Require && self.root_cert.is_some()) {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(self.roots()?), provider).build();
            let verifier = verifier
                .map_err(|error| invalid("the trusted certificates cannot be used").caused_by(error))?;
            if mode == SslMode::VerifyFull {
                builder.with_webpki_verifier(verifier)
            } else {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
            }
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        };
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread("sslkey", key, error))?;
                builder
                    .with_client_auth_cert(certificates("sslcert", cert)?, key)
                    .map_err(|error| invalid("`sslcert` and `sslkey` do not fit together").caused_by(error))?
            }
        };
        Ok(Arc::new(config))
    }

    /// The trusted authorities: those of the address, or of the system.
    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match &self.root_cert {
            Some(file) => {
                for certificate in certificates("sslrootcert", file)? {
                    roots.add(certificate).map_err(|error| unread("sslrootcert", file, error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(invalid(
                "there is no trusted authority to check the server by; give one with `sslrootcert`",
            ));
        }
        Ok(roots)
    }
}

fn certificates(name: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let all = all.map_err(|error| unread(name, file, error))?;
    if all.is_empty() {
        return Err(invalid(&format!("{name}: {} has no certificate in it", file.display())));
    }
    Ok(all)
}

fn unread(name: &str, file: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Invalid, format!("{name}: {} cannot be used", file.display())).caused_by(error)
}

/// `verify-ca`: all checks but that of the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// `prefer` and `require`: against those who only listen.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
