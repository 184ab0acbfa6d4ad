//! HTTPS from clients, and scopes from client certificates.

use std::path::Path;
use std::process::Command;

use super::certificates;
use super::stage::{Gateway, Home, Service};
use crate::process::eventually;

/// Sends a charge with curl, with a client certificate and its key. `None` if the connection is refused.
fn charge(gateway: &Gateway, folder: &Path, certificate: Option<(&str, &str)>) -> Option<String> {
    charge_with(gateway, folder, certificate, None)
}

fn charge_with(
    gateway: &Gateway,
    folder: &Path,
    certificate: Option<(&str, &str)>,
    field: Option<&str>,
) -> Option<String> {
    let mut curl = Command::new("curl");
    curl.current_dir(folder).args(["-sS", "-i", "--max-time", "30", "--cacert", "ca.pem", "-d", "{}"]);
    curl.args(["-H", "Idempotency-Key: k"]).arg(format!("https://{}/charges", gateway.address));
    if let Some((certificate, key)) = certificate {
        curl.args(["--cert", certificate, "--key", key]);
    }
    if let Some(field) = field {
        curl.args(["-H", field]);
    }
    let output = curl.output().unwrap();
    if !output.status.success() {
        // Shown if the test fails: a connection that should not have been refused says why.
        eprintln!("{certificate:?}: curl: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
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

/// Asks for certificates of these authorities.
fn start_asking(home: &Home, service: &Service, authorities: &str) -> Gateway {
    let file = |name: &str| home.folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key, authorities) = (file("server.pem"), file("server.key"), file(authorities));
    let flags = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &authorities];
    home.start_with(&service.url(), &flags)
}

/// One row for each client; those with the same word share a scope.
const IDENTITIES: [(&str, &str); 12] = [
    // The URI names count before all others.
    ("uri", "uri"),
    // With another key, serial number, subject and DNS name.
    ("uri-renewed", "uri"),
    // An authority is known by its name, which stays when its key is replaced.
    ("uri-of-namesake", "uri"),
    ("uri-of-stranger", "uri of another authority"),
    ("other-uri", "other uri"),
    ("dns", "dns"),
    ("dns-renewed", "dns"),
    ("other-dns", "other dns"),
    ("subject", "subject"),
    ("subject-renewed", "subject"),
    ("other-subject", "other subject"),
    ("nameless", ""),
];

#[test]
fn a_certificate_is_known_by_its_authority_and_its_names() {
    for scope in ["mtls", "auto"] {
        let (home, service) = (Home::new(), Service::charging());
        let folder = home.folder.path();
        certificates::make_identities(folder);
        home.write_config(&format!("[defaults]\nscope = \"{scope}\""));
        let gateway = start_asking(&home, &service, "trusted.pem");
        let mut known = Vec::new();
        for (client, identity) in IDENTITIES {
            let (certificate, key) = (format!("{client}.pem"), format!("{client}.key"));
            let answer = charge(&gateway, folder, Some((&certificate, &key))).unwrap();
            if identity.is_empty() {
                let refused = "urn:onceward:problem:scope-missing";
                assert!(answer.starts_with("HTTP/2 400") && answer.contains(refused), "{scope}: {answer}");
                continue;
            }
            let is_known = known.contains(&identity);
            assert_eq!(answer.contains("idempotent-replayed: true"), is_known, "{scope}, {client}: {answer}");
            if !is_known {
                known.push(identity);
            }
            let number = 1 + known.iter().position(|other| *other == identity).unwrap();
            let body = format!("{{\"charge\":{number}}}");
            assert!(
                answer.starts_with("HTTP/2 201") && answer.ends_with(&body),
                "{scope}, {client}: {answer}"
            );
        }
        assert_eq!(service.effects(), known.len());
    }
}

/// With the default, a certificate counts together with the credentials in header fields.
#[test]
fn by_default_a_certificate_and_a_credential_are_one_scope() {
    let (home, service) = (Home::new(), Service::charging());
    let folder = home.folder.path();
    certificates::make_identities(folder);
    let gateway = start_asking(&home, &service, "trusted.pem");
    let charge = |client: &str, token: Option<&str>| {
        let field = token.map(|token| format!("Authorization: Bearer {token}"));
        let (certificate, key) = (format!("{client}.pem"), format!("{client}.key"));
        charge_with(&gateway, folder, Some((&certificate, &key)), field.as_deref()).unwrap()
    };
    for (client, token, number) in [
        ("subject", None, 1),
        ("subject", Some("a"), 2),
        ("subject", Some("b"), 3),
        ("other-subject", Some("a"), 4),
        ("subject-renewed", Some("a"), 2),
        ("subject-renewed", None, 1),
    ] {
        let answer = charge(client, token);
        assert!(answer.ends_with(&format!("{{\"charge\":{number}}}")), "{client} {token:?}: {answer}");
    }
    // A credential does not stand in for the name that is missing.
    let nameless = charge("nameless", Some("a"));
    assert!(nameless.contains("urn:onceward:problem:scope-missing"), "{nameless}");
    assert_eq!(service.effects(), 4);
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
