//! HTTPS from clients, and scopes from client certificates.

use std::path::Path;
use std::process::Command;

use super::certificates;
use super::stage::{Gateway, Home, Service};
use crate::process::eventually;

/// Sends a charge with curl, with a client certificate and its key. `None` if the connection is refused.
fn charge(gateway: &Gateway, folder: &Path, certificate: Option<(&str, &str)>) -> Option<String> {
    let mut curl = Command::new("curl");
    curl.current_dir(folder).args(["-s", "-i", "--max-time", "30", "--cacert", "ca.pem", "-d", "{}"]);
    curl.args(["-H", "Idempotency-Key: k"]).arg(format!("https://{}/charges", gateway.address));
    if let Some((certificate, key)) = certificate {
        curl.args(["--cert", certificate, "--key", key]);
    }
    let output = curl.output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_certificate_is_a_scope_and_a_renewed_one_is_the_same() {
    let (home, service) = (Home::new(), Service::charging());
    let folder = home.folder.path();
    certificates::make(folder);
    home.write_config("[defaults]\nscope = \"mtls\"");
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (certificate, key, authority) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let flags = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &authority];
    let gateway = home.start_with(&service.url(), &flags);
    let alice = charge(&gateway, folder, Some(("alice.pem", "alice.key"))).unwrap();
    assert!(alice.starts_with("HTTP/2 201") && alice.ends_with("{\"charge\":1}"), "{alice}");
    let renewed = charge(&gateway, folder, Some(("renewed.pem", "alice.key"))).unwrap();
    assert!(
        renewed.contains("idempotent-replayed: true") && renewed.ends_with("{\"charge\":1}"),
        "{renewed}"
    );
    let bob = charge(&gateway, folder, Some(("bob.pem", "bob.key"))).unwrap();
    assert!(bob.ends_with("{\"charge\":2}"), "{bob}");
    assert_eq!(charge(&gateway, folder, None), None, "nobody gets in without a certificate");
    assert_eq!(service.effects(), 2);
}

#[test]
fn a_renewed_certificate_is_served_without_a_restart() {
    let (home, service) = (Home::new(), Service::charging());
    let folder = home.folder.path();
    certificates::make(folder);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for kind in ["pem", "key"] {
        std::fs::copy(file(&format!("server.{kind}")), file(&format!("live.{kind}"))).unwrap();
    }
    let (certificate, key) = (file("live.pem"), file("live.key"));
    let gateway = home.start_with(&service.url(), &["--tls-cert", &certificate, "--tls-key", &key]);
    let served = || {
        let script = format!(
            "openssl s_client -connect {} -CAfile ca.pem </dev/null 2>/dev/null | openssl x509 -noout -serial",
            gateway.address
        );
        let output = Command::new("sh").args(["-c", &script]).current_dir(folder).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let first = served();
    assert!(first.starts_with("serial="), "{first}");
    // A broken file changes nothing.
    std::fs::write(&certificate, "broken").unwrap();
    gateway.signal("-HUP");
    assert_eq!(served(), first);
    std::fs::copy(file("alice.key"), &key).unwrap();
    std::fs::copy(file("alice.pem"), &certificate).unwrap();
    eventually("the new certificate is served", || (served() != first).then_some(()));
    assert!(charge(&gateway, folder, None).unwrap().starts_with("HTTP/2 201"));
}
