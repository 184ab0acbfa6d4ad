use super::{Check, Effects, KeyNotation};

#[test]
fn the_command_says_only_what_differs() {
    let mut check = Check::new("http://app/charges");
    assert_eq!(
        check.command_line("late-retry"),
        "onceward verify --url http://app/charges --scenario late-retry --seed 0"
    );
    check.body = r#"{"who":"O'Neil"}"#.into();
    check.effects = Effects::Url { url: "http://app/count".into(), pointer: "/n".into() };
    check.tenants = vec![[("X-T".into(), "a".into()), ("X-T".into(), "b".into())]];
    check.key_notation = KeyNotation::Raw;
    check.lease = std::time::Duration::from_millis(1500);
    check.seed = 7;
    assert_eq!(
        check.command_line("crash"),
        r#"onceward verify --url http://app/charges --body '{"who":"O'\''Neil"}' --raw-key --effects-url http://app/count --effects-pointer /n --tenant-header 'X-T: a' 'X-T: b' --lease 1500ms --scenario crash --seed 7"#
    );
}

#[test]
fn no_credential_is_printed() {
    let mut check = Check::new("http://anna:s3cr3t@app/charges?at=1");
    check.headers = [("X-Api-Key", "s3cr3t"), ("X-Store", "7")].map(|(n, v)| (n.into(), v.into())).to_vec();
    let bearer = |token: &str| ("Authorization".to_owned(), format!("Bearer s3cr3t-{token}"));
    check.tenants = vec![[bearer("a"), bearer("b")]];
    assert_eq!(
        check.command_line("other-tenant"),
        "onceward verify --url 'http://anna:…@app/charges?at=1' --header \"X-Api-Key: $X_API_KEY\" \
         --header 'X-Store: 7' --tenant-header \"Authorization: $AUTHORIZATION_A\" \
         \"Authorization: $AUTHORIZATION_B\" --scenario other-tenant --seed 0"
    );
}
