//! Who asks, where the gateway itself finds it out: the subject of a client's certificate, or a claim of a
//! token that it has verified. Both stay the same when the certificate or the token is renewed.

use std::path::Path;

use http::Request;
use rustls::pki_types::CertificateDer;

use super::jwt::Verifier;
use crate::config::ScopeSource;

/// The subject of a client's certificate, and who says so.
#[derive(Clone, Debug)]
pub struct CertificateSubject(String);

impl CertificateSubject {
    /// Of a certificate that has been verified.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
        // Two authorities may vouch for the same name; they do not mean the same client.
        let mut hasher = blake3::Hasher::new();
        for name in [certificate.issuer(), certificate.subject()] {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
        }
        Some(Self(hasher.finalize().to_hex().to_string()))
    }
}

/// Finds out who asks.
pub struct Callers {
    tokens: Option<Verifier>,
}

impl Callers {
    pub fn new(jwt_key: Option<&Path>) -> Result<Self, String> {
        Ok(Self { tokens: jwt_key.map(Verifier::new).transpose()? })
    }

    /// Whether this source can be used at all.
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

    /// Who asks, if this source is the gateway's to look into and says so.
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
