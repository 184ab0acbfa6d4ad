use std::process::Command;

use super::*;

/// An authority of its own, made by openssl.
fn authority(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let (key, cert) = (folder.path().join("ca.key"), folder.path().join("ca.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=ours", "-days", "2", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    cert
}

/// Anybody can get a certificate of a public authority. It must not pass for one of the authority that was chosen.
#[test]
fn no_authority_is_trusted_that_was_not_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let chosen = TlsSettings { root_cert: Some(authority(&folder)), ..TlsSettings::default() };
    let checked = options(&chosen, SslMode::VerifyFull).unwrap();
    assert!(checked.disable_built_in_roots() && checked.root_certs().len() == 1, "{checked:?}");
    assert!(!checked.accept_invalid_certs() && !checked.skip_domain_validation());
}

/// Without any authority the driver cannot be used at all, not even where it does not check.
#[test]
fn encryption_without_a_check_needs_no_authority() {
    let unchecked = options(&TlsSettings::default(), SslMode::Require).unwrap();
    assert!(unchecked.accept_invalid_certs() && !unchecked.disable_built_in_roots(), "{unchecked:?}");
}
