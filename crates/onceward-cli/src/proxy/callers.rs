//! Identifies callers by the subject of a verified client certificate, or by a claim of a verified token. Both stay
//! the same when the certificate or the token is renewed.

use std::path::Path;

use http::Request;
use rustls::pki_types::CertificateDer;

use super::jwt::JwtVerifier;
use crate::config::ScopeSource;

/// The subject and the issuer of a client certificate, hashed.
#[derive(Clone, Debug)]
pub struct CertificateSubject(String);

impl CertificateSubject {
    /// The subject of a certificate that has been verified.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        // Two authorities may issue the same subject to different clients.
        let mut hasher = blake3::Hasher::new();
        for name in [certificate.issuer(), certificate.subject()] {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
        }
        Some(Self(hasher.finalize().to_hex().to_string()))
    }
}

/// Identifies callers.
pub struct Callers {
    tokens: Option<JwtVerifier>,
}

impl Callers {
    pub fn new(jwt_key: Option<&Path>) -> Result<Self, String> {
        Ok(Self { tokens: jwt_key.map(JwtVerifier::new).transpose()? })
    }

    /// Whether this source of the scope can be used with the settings of the gateway.
    pub fn check(&self, source: &ScopeSource, client_certificates: bool) -> Result<(), String> {
        match source {
            ScopeSource::Jwt(_) if self.tokens.is_none() => {
                Err("scope: \"jwt:…\" needs the key that tokens are verified with: set jwt_key".into())
            }
            ScopeSource::Mtls if !client_certificates => {
                Err("scope: \"mtls\" needs client certificates: set tls_cert, tls_key and tls_client_ca"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// The caller, if the gateway itself identifies callers by this source and the request has it.
    pub fn find<B>(&self, source: &ScopeSource, request: &Request<B>) -> Option<String> {
        match source {
            ScopeSource::Jwt(claim) => self.tokens.as_ref()?.claim(request.headers(), claim),
            ScopeSource::Mtls => {
                request.extensions().get::<CertificateSubject>().map(|subject| subject.0.clone())
            }
            ScopeSource::Authorization | ScopeSource::Header(_) | ScopeSource::Shared => None,
        }
    }
}
