//! The TLS configuration of the client's own connections (feature `rustls`). This is the only library module that
//! brings a cryptography provider, so that `https` works without setup.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};

/// Trusts the certificate authorities of the system. A provider that the application has installed is used; otherwise
/// it is ring, for this client only: the default of the process is not changed.
///
/// A machine without any authorities can still send `http`, so that is no error here: `https` then fails with an
/// unknown issuer.
pub(crate) fn config() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    // This reads SSL_CERT_FILE and SSL_CERT_DIR too.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.expect("a provider has TLS 1.2 or 1.3").with_root_certificates(roots).with_no_client_auth()
}
