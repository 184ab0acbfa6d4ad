use super::*;

#[test]
fn parts_are_found() {
    let address = Address::parse("redis://user:p%40ss@a:1,b:2/3?accept=volatile&prefix=shop").unwrap();
    let hosts: Vec<String> = address.hosts.iter().map(|host| host.addr().to_string()).collect();
    assert_eq!(hosts, ["a:1", "b:2"]);
    for host in &address.hosts {
        assert_eq!(host.redis_settings().password(), Some("p@ss"));
        assert_eq!(host.redis_settings().db(), 3);
    }
    assert_eq!(address.prefix.as_deref(), Some("shop"));
    assert!(address.volatile_accepted && address.sentinel.is_none());
    assert!(!Address::parse("redis://a").unwrap().volatile_accepted);
    assert_eq!(Address::parse("redis://a?sentinel=main").unwrap().sentinel.as_deref(), Some("main"));
}

#[test]
fn sentinels_have_a_login_of_their_own() {
    let url =
        "redis://app:p%40ss@a:26379/0?sentinel=main&sentinel_user=w%26tch&sentinel_password=a%26b%3D%23c%3F";
    let address = Address::parse(url).unwrap();
    assert_eq!(address.sentinel_login.username(), Some("w&tch"));
    assert_eq!(address.sentinel_login.password(), Some("a&b=#c?"));
    assert_eq!(address.hosts[0].redis_settings().password(), Some("p@ss"));
    let printed = format!("{address:?}");
    assert!(!printed.contains("a&b") && !printed.contains("p@ss"), "{printed}");
    let without = Address::parse("redis://:p@a/0?sentinel=main").unwrap().sentinel_login;
    assert_eq!((without.username(), without.password()), (None, None));
}

#[test]
fn mistakes_are_named_and_passwords_are_not() {
    let cases = [
        ("redis:a", "it looks like"),
        ("redis://:secret@a/zero", "database number"),
        ("redis://:secret@a:port/0", "it looks like"),
        ("redis://:secret@a/0?accept=yes", "`accept` can only be `volatile`"),
        ("redis://:secret@a/0?prefx=shop", "`prefx` is not known; there are accept, prefix"),
        ("redis://:secret@a/0?prefix=", "`prefix` has no value"),
        ("redis://a/0?sentinel_password=secret", "`sentinel` does not say"),
        ("redis://a/0?sentinel=main&sentinel_user=app", "`sentinel_user` needs `sentinel_password`"),
        ("redis://a/0?sentinel=main&sentinel_password=", "`sentinel_password` has no value"),
        ("redis://a/0?sentinel=main&sentinel_password=a&secret", "written %26"),
        ("redis://a/0?sentinel=main&sentinel_password=a&secret=b", "written %26"),
        ("redis://a/0?sentinel=main&sentinel_password=secret#b", "written %23"),
    ];
    for (url, word) in cases {
        let error = Address::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        let text = error.to_string();
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "{url}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
