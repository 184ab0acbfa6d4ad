use super::Secrets;
use crate::endpoint::{Check, Effects};

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Every option that can carry a secret carries one here.
fn loaded() -> Check {
    let mut check = Check::new("http://anna:s3cr3t-1@app/charges?token=s3cr3t-2&at=1");
    check.headers = vec![pair("X-Api-Key", "s3cr3t-3"), pair("X-Store", "seven")];
    check.tenants =
        vec![[pair("Cookie", "theme=dark; sid=s3cr3t-4"), pair("Authorization", "Bearer s3cr3t-5")]];
    check.fail_headers = vec![pair("X-Fail-Token", "s3cr3t-6")];
    check.slow_header = Some(pair("X-Slow-Secret", "s3cr3t-7"));
    check.effects =
        Effects::Command("PGPASSWORD=s3cr3t-8 psql postgres://u:s3cr3t-9@db/x -tAc 'select 1'".into());
    check.other_url = Some("http://u:pw1@app/refunds".into());
    check.also_urls = vec!["http://u:s3cr3t-11@app/charges".into()];
    check.start_command = Some("exec app --api-token s3cr3t-10 --port 3000; mysql -ps3cr3t-13 -P3306".into());
    check.ready_command =
        Some("curl -u anna:s3cr3t-14 -H 'Authorization: Bearer s3cr3t-15' http://app/login".into());
    check.alt_body = Some("amount=12&password=s3cr3t-16".into());
    let mut webhook =
        crate::endpoint::Webhook::new("http://app/hooks", crate::endpoint::Scheme::Stripe, "s3cr3t-17");
    webhook.body = r#"{"id":1,"api_key":"s3cr3t-18"}"#.into();
    check.webhook = Some(webhook);
    check.body = r#"{"amount":12,"client_secret":"s3cr3t-12"}"#.into();
    check
}

#[test]
fn no_option_leaks_into_a_text() {
    let check = loaded();
    let secrets = Secrets::of(&check);
    let mut text = format!("{check:?} {}", check.command_line("crash"));
    secrets.conceal(&mut text);
    for number in 1..=18 {
        assert!(!text.contains(&format!("s3cr3t-{number}")), "s3cr3t-{number} is in {text}");
    }
    assert!(!text.contains("pw1"), "{text}");
    for kept in ["http://anna:…@app/charges", "at=1", "seven", "--port 3000", "\"amount\\\":12"] {
        assert!(text.contains(kept), "{kept} is not in {text}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    let mut text = "http://app/charges got 201 {\"id\":7}, as user@example.com".to_owned();
    Secrets::of(&Check::new("http://app/charges")).conceal(&mut text);
    assert_eq!(text, "http://app/charges got 201 {\"id\":7}, as user@example.com");
}

#[test]
fn members_of_an_answer_that_are_credentials_are_not_shown() {
    let masked = |body: &str| super::without_credentials(body.as_bytes());
    assert_eq!(
        masked(r#"{"id":7,"client_secret":"s3cr3t","of":[{"access_token":"s3cr3t"}]}"#).unwrap(),
        r#"{"client_secret":"…","id":7,"of":[{"access_token":"…"}]}"#
    );
    assert_eq!(masked(r#"{"id":7, "token_count":3}"#), None, "the bytes stay as they are");
    assert_eq!(masked("no JSON"), None);
}
