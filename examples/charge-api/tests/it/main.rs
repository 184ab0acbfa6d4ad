//! The service as a process: duplicates at the same time and after a SIGKILL make one row and get one response.

mod kills;
mod service;

use std::thread;

use serde_json::json;

use service::Service;

/// The usual scale of a campaign, or the long one (`ONCEWARD_LONG=1`).
fn usual_or_long<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONCEWARD_LONG").is_some_and(|wanted| wanted == "1") { long } else { usual }
}

#[test]
fn duplicates_charge_once_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("charges.db").display());
    let charge = json!({"account": "a", "amount": 12});
    let answer = r#"{"id":1,"account":"a","amount":12}"#;
    let rows = json!([{"id": 1, "account": "a", "amount": 12}]);

    let service = Service::start(&database, "127.0.0.1:0");
    let answers: Vec<_> = thread::scope(|threads| {
        let send = || service.post("order-81", &charge);
        let calls = [(); 3].map(|()| threads.spawn(send));
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(answers, vec![(201, answer.to_owned()); 3]);
    assert_eq!(service.charges(), rows);
    drop(service);

    let service = Service::start(&database, "127.0.0.1:0");
    assert_eq!(service.post("order-81", &charge), answers[0]);
    assert_eq!(service.charges(), rows);

    // The key with another body is refused. The body with another key is another charge.
    assert_eq!(service.post("order-81", &json!({"account": "a", "amount": 13})).0, 422);
    assert_eq!(service.post("order-82", &charge).0, 201);
    assert_eq!(service.charges().as_array().unwrap().len(), 2);
}

#[test]
fn a_refused_charge_writes_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let service =
        Service::start(&format!("sqlite:{}", folder.path().join("charges.db").display()), "127.0.0.1:0");
    assert_eq!(service.post("order-81", &json!({"account": "a", "amount": 0})).0, 400);
    assert_eq!(service.charges(), json!([]));
}
