use super::*;

#[test]
fn addresses_are_taken_apart() {
    let address = Address::parse("etcd://us%40er:pa:ss@one,two:99,[::1]:7/?prefix=a%2Fb").unwrap();
    let hosts = [("one", PORT), ("two", 99), ("::1", 7)].map(|(host, port)| (host.to_owned(), port));
    assert_eq!(address.hosts, hosts);
    assert_eq!(address.login, Some(("us@er".into(), "pa:ss".into())));
    assert_eq!(address.prefix.as_deref(), Some("a/b"));
    assert!(address.tls.is_none());
    let address = Address::parse("etcd://host").unwrap();
    assert_eq!((address.login, address.prefix), (None, None));
}

#[test]
fn wrong_ones_say_why() {
    for (url, why) in [
        ("etcd:host", "looks like"),
        ("etcd://", "looks like"),
        ("etcd://host:port", "no port"),
        ("etcd://host/db", "looks like"),
        ("etcd://user@host", "password"),
        ("etcd://host?prefix=", "not known"),
        ("etcd://host?lease=1", "not known"),
        ("etcd://host?sslmode=require", "etcds://"),
        ("etcd://host?sslrootcert=x.pem", "etcds://"),
    ] {
        let error = Address::parse(url).expect_err(url);
        assert!(error.to_string().contains(why), "{url}: {error}");
    }
}
