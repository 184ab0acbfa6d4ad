//! Runs `onceward verify` against the gateway.

use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::certificates;
use super::stage::{Gateway, Home, Reply, Service};
use crate::process::onceward;
use crate::servers::Postgres;

/// A service that charges slowly, so that duplicates arrive meanwhile, and counts its charges.
fn counting() -> Service {
    let charges = AtomicUsize::new(0);
    Service::start(move |request| {
        if request.line.starts_with("GET /count") {
            return Reply::Answer(200, charges.load(Ordering::SeqCst).to_string());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let charge = charges.fetch_add(1, Ordering::SeqCst) + 1;
        match request.field("x-fail-after").and_then(|status| status.parse().ok()) {
            Some(status) => Reply::Answer(status, "failed after the charge".to_owned()),
            None => Reply::created(format!("{{\"charge\":{charge}}}")),
        }
    })
}

/// Runs the verifier. Returns its exit code and its output.
fn verify(url: &str, service: &Service, more: &[&str]) -> (Option<i32>, String) {
    let effects = format!("{}/count", service.url());
    let mut command =
        onceward(&["verify", "--url", url, "--effects-url", &effects, "--body", "{\"amount\":1}"]);
    command.args(["--clients", "30", "--rounds", "3"]).args(more);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), format!("{}\n{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn a_service_behind_the_gateway_passes_verification() {
    let (home, service) = (Home::new(), counting());
    home.write_config("[[route]]\npath = \"/charges\"\nkey = \"required\"");
    let gateway = home.start(&service.url());
    let url = format!("http://{}/charges", gateway.address);
    let tenants = ["--tenant-header", "Authorization: Bearer a", "Authorization: Bearer b"];
    let (code, said) = verify(&url, &service, &[&["--alt-body", "{\"amount\":2}"][..], &tenants].concat());
    assert_eq!(code, Some(0), "{said}");
}

/// Whatever the service answers after its effect, nothing runs again by default.
#[test]
fn a_failure_after_the_effect_runs_nothing_again_behind_the_gateway() {
    let (home, service) = (Home::new(), counting());
    home.write_config("[defaults]\nlease = \"1s\"");
    let gateway = home.start(&service.url());
    let url = format!("http://{}/charges", gateway.address);
    let hook = ["--fail-after-effect-header", "X-Fail-After: {status}", "--scenario", "failed-after-effect"];
    let (code, said) = verify(&url, &service, &[&hook[..], &["--lease", "1s"]].concat());
    assert!(code == Some(0) && said.contains("one effect each"), "{said}");
}

#[test]
fn verification_passes_over_tls_and_needs_a_trusted_certificate() {
    let (home, service) = (Home::new(), counting());
    certificates::make(home.folder.path());
    let file = |name: &str| home.folder.path().join(name).display().to_string();
    let (certificate, key, authority) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let gateway = home.start_with(&service.url(), &["--tls-cert", &certificate, "--tls-key", &key]);
    let url = format!("https://{}/charges", gateway.address);
    let some = ["--scenario", "simultaneous-duplicates", "--scenario", "retry-while-running"];
    for version in [&[][..], &["--http2"]] {
        let (code, said) = verify(&url, &service, &[&some[..], &["--ca", &authority], version].concat());
        assert_eq!(code, Some(0), "{said}");
        let before = service.effects();
        let (code, said) = verify(&url, &service, &[&some[..], version].concat());
        assert!(code == Some(2) && said.contains("--ca"), "{said}");
        let sent = service.received().split_off(before);
        assert!(sent.iter().all(|request| request.line.starts_with("GET")), "nothing is sent to a stranger");
    }
}

/// The host counts as a part of the request: instances of one service are reached by one.
#[test]
fn two_gateways_on_one_store_pass_verification() {
    let Some(server) = Postgres::start() else { return };
    let (home, service, database) = (Home::new(), counting(), server.database("receipts"));
    let secret = [("ONCEWARD_SECRET", "0123456789abcdef0123456789abcdef")];
    let start = || Gateway::start_on(&database, &service.url(), &home.config(), &[], &secret);
    let (one, two) = (start(), start());
    let url = |gateway: &Gateway| format!("http://{}/charges", gateway.address);
    for version in [&[][..], &["--http2"]] {
        let also = ["--also-url", &url(&two), "--scenario", "several-instances"];
        let (code, said) = verify(&url(&one), &service, &[&also, version].concat());
        assert!(code == Some(0) && said.contains("2 instances"), "{said}");
    }
}
