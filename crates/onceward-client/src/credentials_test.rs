//! Tests of the names that are credentials.

use http::HeaderValue;

use super::*;

#[test]
fn credentials_of_all_known_kinds_are_recognised() {
    for name in [
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "DPoP",
        "X-Api-Key",
        "Api-Key",
        "ApiKey",
        "X-ApiKey",
        "Ocp-Apim-Subscription-Token",
        "X-Auth-Token",
        "X-Auth",
        "X-Access-Token",
        "X-Amz-Security-Token",
        "X-Goog-Iam-Authorization-Token",
        "X-Shopify-Access-Token",
        "X-Vault-Token",
        "Private-Token",
        "X-Csrf-Token",
        "X-Client-Secret",
        "X-Password",
        "X-User-Passwd",
        "X-Session-Id",
        "X-Credential",
        "Signature",
        "Signature-Input",
        "Stripe-Client-Secret",
        "X-Jwt",
        "X-Otp",
        "X-Webhook-Sig",
        "AccessKey",
        "X-Access-Key",
        "X_Api_Key",
        "X-Apikey-Id",
        "X-Jwt-Assertion",
    ] {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        assert!(is_credential(&name), "{name}");
    }
}

#[test]
fn other_fields_are_not() {
    for name in [
        "Content-Type",
        "Accept",
        "User-Agent",
        "X-Tenant",
        "X-Author",
        "X-Authority",
        "X-Request-Id",
        "Traceparent",
        "X-Shop",
        "If-Match",
        "Prefer",
        "X-Shipping-Region",
        "X-Design",
        "X-Key-Version",
        "Stripe-Version",
    ] {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        assert!(!is_credential(&name), "{name}");
    }
}

#[test]
fn a_client_knows_which_of_its_fields_are_credentials() {
    let mut headers = HeaderMap::new();
    let mut sensitive = HeaderValue::from_static("7");
    sensitive.set_sensitive(true);
    headers.append("x-shop", sensitive);
    for name in ["user-agent", "x-gate-code", "authorization", "x-api-key"] {
        headers.append(name, HeaderValue::from_static("7"));
        headers.append(name, HeaderValue::from_static("8"));
    }
    let credentials = Credentials::new(vec![HeaderName::from_static("x-gate-code")], &headers);
    assert_eq!(credentials.sent(), ["authorization", "x-api-key", "x-gate-code", "x-shop"]);
}
