//! An https upstream: nothing is sent before its certificate is verified.

use super::certificates;
use super::stage::{Gateway, Home, Service};

/// A service with TLS: a second gateway terminates TLS, and guards nothing.
struct Secured {
    service: Service,
    front: Gateway,
    home: Home,
}

impl Secured {
    fn start() -> Self {
        let (home, service) = (Home::new(), Service::charging());
        certificates::make(home.folder.path());
        home.write_config("[defaults]\nkey = \"ignored\"");
        let file = |name: &str| home.folder.path().join(name).display().to_string();
        let flags = ["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")];
        let front = home.start_with(&service.url(), &flags);
        Self { service, front, home }
    }

    /// A gateway that reaches it by this name, trusts this authority, and keeps its receipts in `home`.
    fn reached(&self, host: &str, authority: &str, home: &Home) -> Gateway {
        let upstream = format!("https://{host}:{}", self.front.address.port());
        let store = format!("embedded:{}", home.folder.path().join("receipts").display());
        let authority = self.home.folder.path().join(authority).display().to_string();
        Gateway::start_on(&store, &upstream, &home.config(), &[], &[("SSL_CERT_FILE", &authority)])
    }
}

#[test]
fn a_service_with_a_trusted_certificate_is_reached() {
    let (secured, home) = (Secured::start(), Home::new());
    let gateway = secured.reached("127.0.0.1", "ca.pem", &home);
    let first = gateway.charge("a", "{}");
    assert_eq!((first.status, first.body.as_str()), (201, "{\"charge\":1}"));
    assert_eq!(gateway.charge("a", "{}").field("idempotent-replayed"), Some("true"));
    assert_eq!(gateway.charge("b", "{}").body, "{\"charge\":2}");
    assert_eq!(secured.service.effects(), 2);
}

#[test]
fn a_service_without_a_trusted_certificate_gets_nothing_and_the_key_stays_free() {
    let (secured, home) = (Secured::start(), Home::new());
    // An untrusted authority, and a certificate for another name.
    for (host, authority) in [("127.0.0.1", "stranger.pem"), ("localhost", "ca.pem")] {
        let gateway = secured.reached(host, authority, &home);
        for _ in 0..2 {
            let refused = gateway.charge("a", "{}");
            assert_eq!(refused.problem(), (502, "upstream-unreachable".into()), "{host}, {authority}");
            assert_eq!(refused.json()["retryable"], true);
        }
        assert_eq!(gateway.post("/charges", &[], "{}").status, 502, "nor without a key");
        assert!(gateway.metric("onceward_unknowns_total") < 1.0);
        gateway.kill();
    }
    assert_eq!(secured.service.effects(), 0);
    let gateway = secured.reached("127.0.0.1", "ca.pem", &home);
    assert_eq!(gateway.charge("a", "{}").status, 201);
    assert_eq!(secured.service.effects(), 1);
}
