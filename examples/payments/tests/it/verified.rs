//! Checks the example with the black-box verifier, kills included.

use onceward_verify::endpoint::{Check, Effects};

use crate::service::Service;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_are_safe_to_retry_as_seen_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(&format!("sqlite:{}", folder.path().join("payments.db").display()), 0).await;
    let check = Check::new(format!("http://{}/charges", service.address))
        .with_body(r#"{"account":"a","amount":1}"#)
        .with_effects(Effects::url(format!("http://{}/charges/count", service.address)))
        .with_clients(20)
        .with_rounds(3);
    check.run().await.unwrap().assert_holds();
}
