//! The gateway before the judge that knows nothing of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::stage::{Home, Reply, Service};
use crate::process::onceward;

#[test]
fn a_service_behind_the_gateway_is_safe_to_retry_as_seen_from_outside() {
    let charges = AtomicUsize::new(0);
    let service = Service::start(move |request| {
        if request.line.starts_with("GET /count") {
            return Reply::Answer(200, charges.load(Ordering::SeqCst).to_string());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        Reply::created(format!("{{\"charge\":{}}}", charges.fetch_add(1, Ordering::SeqCst) + 1))
    });
    let home = Home::new();
    home.write_config("[[route]]\npath = \"/charges\"\nkey = \"required\"");
    let gateway = home.start(&service.url());
    let url = format!("http://{}/charges", gateway.address);
    let effects = format!("{}/count", service.url());
    let judged = onceward(&["verify", "--url", &url, "--effects-url", &effects, "--body", "{\"amount\":1}"])
        .args(["--alt-body", "{\"amount\":2}", "--tenant-header", "Authorization: a", "Authorization: b"])
        .args(["--clients", "30", "--rounds", "3"])
        .output()
        .unwrap();
    let (said, why) = (String::from_utf8_lossy(&judged.stdout), String::from_utf8_lossy(&judged.stderr));
    assert_eq!(judged.status.code(), Some(0), "{said}\n{why}");
}
