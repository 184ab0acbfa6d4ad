//! Tests of reading and creating the secret.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use onceward::{Ask, Fingerprint, Id, Onceward, Outcome, Policy};

use super::for_store;

async fn engine(url: &str) -> Onceward {
    Onceward::new(onceward_stores::open(url).await.unwrap()).unwrap()
}

#[tokio::test]
async fn the_secret_of_a_folder_is_created_once_and_readable_only_by_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", folder.path().join("data").display());
    let onceward = engine(&url).await;
    let first = for_store(&url, None, &onceward).await.unwrap();
    let again = for_store(&url, None, &onceward).await.unwrap();
    assert_eq!(first, again);
    let mode = folder.path().join("data/secret").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_missing_secret_is_not_replaced_while_there_are_receipts() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", folder.path().join("data").display());
    let onceward = engine(&url).await;
    for_store(&url, None, &onceward).await.unwrap();
    let id = Id::new("scope", "operation", "key").unwrap();
    let ask = Ask::new(id, Fingerprint::of(b""), Arc::new(Policy::http()));
    onceward.run(ask, async |_| Ok(Outcome::succeeded(""))).await.unwrap();
    std::fs::remove_file(folder.path().join("data/secret")).unwrap();
    let error = for_store(&url, None, &onceward).await.unwrap_err();
    assert!(error.contains("backup"), "{error}");
    std::fs::write(folder.path().join("data/secret"), "short").unwrap();
    let error = for_store(&url, None, &onceward).await.unwrap_err();
    assert!(error.contains("32 bytes"), "{error}");
}

#[tokio::test]
async fn a_given_secret_is_used_and_a_short_one_is_refused() {
    let onceward = Onceward::builder(onceward_stores::open("memory:").await.unwrap());
    let onceward = onceward.accept_volatile().build().unwrap();
    let (one, two) = ("1".repeat(32), "2".repeat(40));
    let both = for_store("memory:", Some(&format!("{one}, {two}")), &onceward).await.unwrap();
    let first = for_store("memory:", Some(&one), &onceward).await.unwrap();
    let second = for_store("memory:", Some(&two), &onceward).await.unwrap();
    assert_eq!(both.current(), first.current());
    assert_eq!(both.older(), [*second.current()]);
    let error = for_store("memory:", Some("short"), &onceward).await.unwrap_err();
    assert!(error.contains("32 characters"), "{error}");
    let error = for_store("postgres://x", None, &onceward).await.unwrap_err();
    assert!(error.contains("ONCEWARD_SECRET"), "{error}");
}
