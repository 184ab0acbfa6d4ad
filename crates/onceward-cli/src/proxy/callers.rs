//! Identifies callers by the identity in a verified client certificate, or by a claim of a verified token. Both stay
//! the same when the certificate or the token is renewed.

use std::path::Path;

use http::Request;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};

use onceward_http::admin::shape::SearchedClaims;

use super::jwt::{self, JwtVerifier};
use crate::config::ScopeSource;

/// The identity in a client certificate, hashed: the authority that is trusted, with the URI names or else the DNS
/// names or else the subject of the certificate. Empty if there are none of these. Never its key, its serial number or
/// its bytes, which change when it is renewed.
#[derive(Clone, Debug)]
pub struct CertificateSubject(String);

impl CertificateSubject {
    /// The identity in a certificate that has been verified against these authorities. `None` if it does not pass: it may
    /// have expired since the session that is resumed.
    pub fn of(chain: &[CertificateDer<'_>], authorities: &RootCertStore) -> Option<Self> {
        let (own, between) = chain.split_first()?;
        let certificate = webpki::EndEntityCert::try_from(own).ok()?;
        // The issuer that the certificate names may be any between it and the authority.
        let path = certificate.verify_for_usage(
            webpki::ALL_VERIFICATION_ALGS,
            &authorities.roots,
            between,
            UnixTime::now(),
            webpki::KeyUsage::client_auth(),
            None,
            None,
        );
        let path = path.ok()?;
        let uris: Vec<&[u8]> = certificate.valid_uri_names().map(str::as_bytes).collect();
        let domains: Vec<&[u8]> = certificate.valid_dns_names().map(str::as_bytes).collect();
        // An empty sequence of names.
        let subject = Some(certificate.subject()).filter(|subject| !matches!(subject, [] | [0x30, 0]));
        let (kind, mut names) = match (&uris[..], &domains[..], subject) {
            ([_, ..], ..) => ("uri", uris),
            (_, [_, ..], _) => ("dns", domains),
            (_, _, Some(subject)) => ("subject", vec![subject]),
            (_, _, None) => return Some(Self(String::new())),
        };
        names.sort_unstable();
        // Two authorities may issue the same name to different clients.
        let mut hasher = blake3::Hasher::new();
        for part in [path.anchor().subject.as_ref(), kind.as_bytes()].into_iter().chain(names) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Some(Self(hasher.finalize().to_hex().to_string()))
    }
}

/// One text for what all sources say.
fn joined(mut found: Vec<String>) -> Option<String> {
    match &mut found[..] {
        [] => None,
        [one] => Some(std::mem::take(one)),
        several => Some(serde_json::json!(several).to_string()),
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

    /// Returns whether this source of the scope can be used with the settings of the gateway.
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

    /// The caller, as far as the gateway itself identifies callers by these sources. `None` if one of them is absent.
    pub fn find<B>(&self, sources: &[ScopeSource], request: &Request<B>) -> Option<String> {
        let certificate =
            || request.extensions().get::<CertificateSubject>().map(|subject| subject.0.clone());
        let mut found = Vec::new();
        for source in sources {
            match source {
                ScopeSource::Jwt(claim) => found.push(self.tokens.as_ref()?.claim(request.headers(), claim)?),
                ScopeSource::Mtls => found.push(certificate()?),
                // A certificate counts together with the credentials in header fields.
                ScopeSource::Auto => found.extend(certificate()),
                ScopeSource::Header(_) | ScopeSource::Cookie(_) | ScopeSource::Host | ScopeSource::Shared => {
                }
            }
        }
        // A certificate without an identity names nobody, whatever else does: the layer refuses an empty caller.
        if found.iter().any(String::is_empty) {
            return Some(String::new());
        }
        joined(found)
    }

    /// The callers that a search by these claims can mean: a value may be text or a number. `None` among them says that
    /// these sources verify nobody; there are none if a claim that they read is not named.
    pub fn claimed<B>(sources: &[ScopeSource], request: &Request<B>) -> Vec<Option<String>> {
        let claims = request.extensions().get::<SearchedClaims>();
        let mut callers = vec![Vec::new()];
        for source in sources {
            let ScopeSource::Jwt(claim) = source else { continue };
            let values = claims.map_or(Vec::new(), |claims| jwt::searched(claims, claim));
            let with = |before: &Vec<String>| {
                let before = before.clone();
                values
                    .iter()
                    .map(move |value| [&before[..], std::slice::from_ref(value)].concat())
                    .collect::<Vec<_>>()
            };
            callers = callers.iter().flat_map(with).collect();
        }
        callers.into_iter().map(joined).collect()
    }
}
