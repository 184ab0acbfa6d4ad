//! TLS for the driver.

use mysql_async::{ClientIdentity, SslOpts};
use onceward::{Error, ErrorKind, Result};

use crate::tls::{SslMode, TlsSettings};

/// The driver's options for this mode. The driver cannot leave out the check of the name alone, so the mode that does
/// is refused.
pub(super) fn options(tls: &TlsSettings, mode: SslMode) -> Result<SslOpts> {
    if mode == SslMode::VerifyCa || (mode == SslMode::Require && tls.root_cert.is_some()) {
        let detail =
            "for MySQL, a certificate is checked with its name or not at all; set sslmode=verify-full";
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    // Reads all files, so that one that cannot be used is named at once and not at the first connection.
    tls.client_config(mode)?;
    let verifies = mode == SslMode::VerifyFull;
    let roots = match &tls.root_cert {
        Some(file) => vec![file.clone().into()],
        None if verifies => {
            let system = rustls_native_certs::load_native_certs().certs.into_iter();
            // The driver gives up at one that it cannot read.
            system.filter(is_readable).map(|certificate| certificate.to_vec().into()).collect()
        }
        None => Vec::new(),
    };
    let client =
        tls.client.as_ref().map(|(cert, key)| ClientIdentity::new(cert.clone().into(), key.clone().into()));
    Ok(SslOpts::default()
        .with_root_certs(roots)
        // The driver has public authorities of its own, which nobody here has chosen to trust. Where the server is not
        // checked they are not used, and the driver needs at least one.
        .with_disable_built_in_roots(verifies)
        .with_client_identity(client)
        .with_danger_accept_invalid_certs(!verifies)
        .with_danger_skip_domain_validation(!verifies))
}

fn is_readable(certificate: &rustls::pki_types::CertificateDer<'_>) -> bool {
    rustls::RootCertStore::empty().add(certificate.clone().into_owned()).is_ok()
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
