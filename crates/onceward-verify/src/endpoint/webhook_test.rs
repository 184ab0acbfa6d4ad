use super::{Scheme, Webhook};

/// The example of GitHub's documentation.
#[test]
fn github_is_signed_as_documented() {
    let webhook = Webhook::new("http://app/hooks", Scheme::GitHub, "It's a Secret to Everybody");
    let fields = webhook.fields("d-1", b"Hello, \x57orld!", 0);
    assert_eq!(fields[0].1, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
}

/// The bytes of the same example, in base64.
#[test]
fn shopify_is_signed_over_the_body() {
    let webhook = Webhook::new("http://app/hooks", Scheme::Shopify, "It's a Secret to Everybody");
    let fields = webhook.fields("w-1", b"Hello, \x57orld!", 0);
    let expected = [
        ("X-Shopify-Hmac-Sha256", "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc="),
        ("X-Shopify-Webhook-Id", "w-1"),
        ("X-Shopify-Topic", "orders/create"),
    ];
    for (name, value) in expected {
        assert!(fields.contains(&(name, value.to_owned())), "{fields:?}");
    }
    assert_eq!(
        fields,
        webhook.fields("w-1", b"Hello, \x57orld!", 9),
        "a later delivery has the same signature"
    );
    assert!(!Scheme::Shopify.signs_time() && !Scheme::GitHub.signs_time());
}

/// The example of the Standard Webhooks libraries.
#[test]
fn standard_webhooks_are_signed_as_documented() {
    let webhook =
        Webhook::new("http://app/hooks", Scheme::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let fields = webhook.fields("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#, 1_614_265_330);
    assert_eq!(fields[2].1, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn a_redelivery_has_another_signature_and_the_same_event() {
    let webhook = Webhook::new("http://app/hooks", Scheme::Stripe, "whsec_test");
    let event = webhook.event("evt_1").unwrap();
    assert_eq!(event, r#"{"id":"evt_1","type":"charge.succeeded"}"#);
    let [one, other] = [1, 2].map(|unix_s| webhook.fields("evt_1", &event, unix_s));
    assert!(one[0].1.starts_with("t=1,v1=") && other[0].1.starts_with("t=2,v1="));
    assert_ne!(one[0].1[4..], other[0].1[4..]);
    let nowhere = Webhook { id_pointer: "/data/id".into(), ..webhook };
    assert!(nowhere.event("evt_1").is_err());
}

/// Handlers answer a ping without doing anything, so that is not what is delivered unless it is asked for.
#[test]
fn github_is_told_a_kind_of_event_that_has_effects() {
    let mut webhook = Webhook::new("http://app/hooks", Scheme::GitHub, "s");
    assert!(webhook.fields("d-1", b"{}", 0).contains(&("X-GitHub-Event", "push".to_owned())));
    webhook.event_name = "issues".to_owned();
    assert!(webhook.fields("d-1", b"{}", 0).contains(&("X-GitHub-Event", "issues".to_owned())));
}
