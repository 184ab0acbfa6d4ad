//! Listing the intents of a journal.

use onceward_client::ListWhich;

use crate::journal::{builder, hasty};
use crate::server::{Fault, Server};

#[tokio::test]
async fn a_journal_lists_its_intents_and_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|came| match came.intent.as_str() {
        "open" => Fault::Status(503),
        "unknown" => Fault::KeyExpired,
        _ => Fault::None,
    })
    .await;
    let key = http::HeaderValue::from_static("s3cr3t");
    let client = builder(folder.path())
        .with_retry_config(hasty())
        .with_header(http::HeaderName::from_static("x-api-key"), key)
        .build()
        .unwrap();
    for name in ["open", "unknown", "done"] {
        let url = format!("{}?code=77", server.url);
        let _ = client.post(url).json(&serde_json::json!({ "intent": name })).intent(name).send().await;
    }
    client.recorded().await;
    let before = server.state().requests;
    let list = async |which| {
        let mut all = Vec::new();
        client.list(which, |intent| all.push(intent)).await.unwrap();
        all
    };
    let states = |all: &[onceward_client::Intent]| {
        all.iter().map(|intent| format!("{} {}", intent.name, intent.state)).collect::<Vec<_>>()
    };
    let unfinished = list(ListWhich::Unfinished).await;
    assert_eq!(states(&unfinished), ["open open", "unknown unknown"]);
    assert_eq!(states(&list(ListWhich::All).await), ["open open", "unknown unknown", "done answered 201"]);
    let open = &unfinished[0];
    let request = open.request.as_ref().unwrap();
    assert_eq!((request.method.as_str(), &request.url), ("POST", &server.url), "without its query");
    assert_eq!(request.credentials, ["x-api-key"]);
    assert!(open.note.contains("answered 503") && open.created_ago >= open.changed_ago, "{open:?}");
    assert!(!format!("{unfinished:?}").contains("s3cr3t"));
    assert_eq!(server.state().requests, before, "nothing was sent");
}
