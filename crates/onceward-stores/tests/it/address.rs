//! Tests of addresses: what `open` accepts, and the errors for the rest.

use onceward::ErrorKind;

use crate::support::block_on;

#[test]
fn memory_opens() {
    let store = block_on(onceward_stores::open("memory:")).unwrap();
    assert_eq!(store.caps().name, "memory");
    assert!(!store.caps().promises.durable);
}

#[cfg(feature = "embedded")]
#[test]
fn a_folder_opens() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", folder.path().join("new/deep").display());
    let store = block_on(onceward_stores::open(&url)).unwrap();
    assert_eq!(store.caps().name, "embedded");
    assert!(store.caps().promises.durable && !store.caps().promises.shared);
}

#[cfg(feature = "embedded")]
#[test]
fn metrics_of_the_store_come_with_it_and_do_not_keep_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("embedded:{}", folder.path().display());
    let opened = block_on(onceward_stores::open_with_metrics(&url)).unwrap();
    let groups = opened.group_commits.unwrap();
    assert_eq!(groups().swaps, 0);
    crate::support::hold(&*opened.store, 1, 30);
    assert_eq!((groups().swaps, groups().by_size[0]), (1, 1));
    drop(opened.store);
    let again = block_on(onceward_stores::open_with_metrics(&url)).unwrap();
    assert!(again.group_commits.is_some() && groups().swaps == 1);
    assert!(block_on(onceward_stores::open_with_metrics("memory:")).unwrap().group_commits.is_none());
}

#[test]
fn what_is_not_understood_is_explained() {
    for (url, part) in [
        ("oracle://x", "`oracle:`"),
        ("oracle://x", "memory:"),
        ("data", "`data:`"),
        ("", "memory:"),
        ("memory:x", "nothing behind"),
        ("embedded:", "embedded:./data"),
    ] {
        let Err(error) = block_on(onceward_stores::open(url)) else { panic!("{url} opened") };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains(part), "{url}: {error}");
    }
}

/// A column of the one table of addresses: a store without an identity is refused by its entry.
#[test]
fn only_stores_that_can_have_a_front_have_an_identity_to_renew() {
    for (url, part) in [
        ("memory:", "`memory:` has no identity"),
        #[cfg(feature = "sqlite")]
        ("sqlite:x.db", "`sqlite:` has no identity"),
        #[cfg(feature = "mysql")]
        ("memory:", "mysql://USER@HOST"),
        #[cfg(feature = "postgres")]
        ("memory:", "postgres://USER@HOST"),
        ("oracle://x", "no store is known"),
    ] {
        let error = block_on(onceward_stores::renew_identity(url)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains(part), "{url}: {error}");
    }
}

/// By every name of its scheme: it gets as far as the server.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn an_identity_is_renewed_by_every_name_of_the_scheme() {
    for name in ["postgres", "postgresql"] {
        let error =
            onceward_stores::renew_identity(&format!("{name}://app@127.0.0.1:1/shop")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
    }
}

#[cfg(not(feature = "embedded"))]
#[test]
fn a_feature_that_is_off_is_named() {
    let Err(error) = block_on(onceward_stores::open("embedded:x")) else { panic!("opened") };
    assert!(error.to_string().contains("cargo feature `embedded`"), "{error}");
}
