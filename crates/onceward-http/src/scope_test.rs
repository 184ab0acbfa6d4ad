//! Tests of whose request it is.

use http::Request;

use super::*;

type Named = Result<(String, Caller), Unnamed>;

fn read_with(sources: &[ScopeFrom], anonymous: Option<OnAnonymous>, fields: &[(&str, &str)]) -> Named {
    let mut request = Request::builder().uri("/charges");
    for (name, value) in fields {
        if *name == "caller" {
            request = request.extension(CallerScope((*value).to_owned()));
        } else {
            request = request.header(*name, *value);
        }
    }
    let request = request.body(()).unwrap();
    let (uri, headers, extensions) = (request.uri(), request.headers(), request.extensions());
    let read = read(
        sources,
        anonymous,
        CallerHead {
            uri,
            headers,
            fields: RequestFields::of(headers),
            caller: extensions.get(),
            forwarded_host: extensions.get(),
        },
        &[7; 32],
    );
    read.map(|(scope, caller)| (scope.as_str().to_owned(), caller))
}

fn auto(fields: &[(&str, &str)]) -> Named {
    read_with(&[ScopeFrom::Auto], None, fields)
}

#[track_caller]
fn named(read: Named) -> String {
    let (scope, caller) = read.expect("a caller");
    assert_eq!((scope.len(), caller), (32, Caller::Named));
    scope
}

#[test]
fn every_credential_that_stays_the_same_names_its_caller() {
    let mut seen = Vec::new();
    for fields in [
        &[("authorization", "Bearer a")][..],
        &[("authorization", "Bearer b")],
        &[("authorization", "basic YTpi")],
        &[("authorization", "Token a")],
        &[("authorization", "ApiKey a")],
        &[("authorization", "DPoP a")],
        &[("x-api-key", "a")],
        &[("api-key", "a")],
        &[("caller", "a")],
        &[("authorization", "Bearer a"), ("x-api-key", "a")],
        &[("authorization", "Bearer a"), ("cookie", "s=1"), ("x-api-key", "b")],
        &[("x-api-key", "a"), ("x-api-key", "a")],
    ] {
        let scope = named(auto(fields));
        assert!(!seen.contains(&scope), "{fields:?}");
        assert_eq!(named(auto(fields)), scope);
        seen.push(scope);
    }
    // A cookie beside a credential does not count: it may change from try to try.
    let bearer = |cookie| named(auto(&[("authorization", "Bearer a"), ("cookie", cookie)]));
    assert_eq!(bearer("s=1"), bearer("s=2"));
}

#[test]
fn a_credential_that_cannot_be_recognised_is_refused_and_the_text_names_the_setting() {
    for fields in [
        &[("authorization", "AWS4-HMAC-SHA256 Credential=a, Signature=b")][..],
        &[("authorization", "Digest username=\"a\"")],
        &[("authorization", "OAuth oauth_nonce=\"a\"")],
        &[("authorization", "Hawk id=\"a\"")],
        &[("authorization", "c2VjcmV0")],
        &[("authorization", "Bearer a"), ("authorization", "Hawk id=\"a\"")],
        &[("cookie", "session=1")],
        &[("proxy-authorization", "Basic YTpi")],
        &[("signature-input", "sig=()")],
        &[("authorization", "Basic YTpi"), ("cookie", "session=1")],
        &[("caller", "")],
    ] {
        let text = auto(fields).expect_err("no caller").to_string();
        assert!(text.contains("`scope`"), "{fields:?}: {text}");
        assert!(!text.contains("c2VjcmV0") && !text.contains("YTpi"), "{text}");
        let shared = read_with(&[ScopeFrom::Auto], Some(OnAnonymous::Share), fields).unwrap();
        assert_eq!(shared.1, Caller::Anonymous, "only where it is said");
    }
    assert!(
        auto(&[("authorization", "AWS4-HMAC-SHA256 x")])
            .unwrap_err()
            .to_string()
            .contains("AWS4-HMAC-SHA256")
    );
}

#[test]
fn without_any_credential_the_scope_is_anonymous_or_refused() {
    assert_eq!(auto(&[("accept", "*/*")]), Ok(("anonymous".into(), Caller::Anonymous)));
    let refused = read_with(&[ScopeFrom::Auto], Some(OnAnonymous::Refuse), &[]);
    assert_eq!(refused, Err(Unnamed::Absent(ScopeFrom::Auto)));
}

#[test]
fn a_source_that_is_configured_and_absent_is_refused_unless_the_route_shares() {
    let header = || ScopeFrom::Header(HeaderName::from_static("x-tenant"));
    for source in [header(), ScopeFrom::Cookie("session".into()), ScopeFrom::Host, ScopeFrom::Extension] {
        let read =
            |anonymous| read_with(std::slice::from_ref(&source), anonymous, &[("cookie", "sessions=1")]);
        assert_eq!(read(None), Err(Unnamed::Absent(source.clone())));
        assert_eq!(read(Some(OnAnonymous::Share)), Ok(("anonymous".into(), Caller::Anonymous)));
    }
    assert_eq!(read_with(&[ScopeFrom::Shared], None, &[]), Ok(("shared".into(), Caller::Named)));
}

#[test]
fn cookies_are_found_by_name_on_any_line() {
    let session =
        |fields: &[(&str, &str)]| named(read_with(&[ScopeFrom::Cookie("session".into())], None, fields));
    let one = session(&[("cookie", "session=1")]);
    assert_eq!(session(&[("cookie", "a=b; session=1;c=d")]), one);
    assert_eq!(session(&[("cookie", "a=b"), ("cookie", "session=1")]), one);
    assert_ne!(session(&[("cookie", "session=2")]), one);
    assert_ne!(session(&[("cookie", "session=1; session=2")]), one);
}

#[test]
fn several_sources_count_together() {
    let sources = [ScopeFrom::Auto, ScopeFrom::Host];
    let read = |token: &str, host: &str| {
        named(read_with(&sources, None, &[("authorization", token), ("host", host)]))
    };
    let first = read("Bearer a", "one.example");
    assert_eq!(read("Bearer a", "ONE.example:443"), first);
    assert_ne!(read("Bearer a", "two.example"), first);
    assert_ne!(read("Bearer b", "one.example"), first);
    // A host does not name a caller.
    let (scope, caller) = read_with(&sources, None, &[("host", "one.example")]).unwrap();
    assert_eq!((scope.len(), caller), (32, Caller::Anonymous));
    assert_eq!(
        read_with(&sources, None, &[("authorization", "Bearer a")]),
        Err(Unnamed::Absent(ScopeFrom::Host))
    );
}

#[test]
fn a_connection_that_lists_a_field_that_counts_is_noticed() {
    let listed = |connection: &str| {
        let request = Request::builder()
            .header("connection", connection)
            .header("x-tenant", "a")
            .header("x-other", "b")
            .body(())
            .unwrap();
        listed_by_connection(request.headers(), |name| name == "x-tenant").is_some()
    };
    assert!(listed("X-Tenant") && listed("keep-alive, x-tenant"));
    assert!(!listed("keep-alive") && !listed("close, X-Other") && !listed("x-absent"));
}
