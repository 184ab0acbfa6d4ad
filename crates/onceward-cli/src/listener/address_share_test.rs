use super::*;

fn networks(text: &str) -> Networks {
    text.parse().unwrap()
}

#[track_caller]
fn contains(text: &str, address: &str) -> bool {
    networks(text).contains(address.parse().unwrap())
}

#[test]
fn an_address_belongs_to_a_network_by_its_prefix() {
    assert!(contains("10.0.0.0/8", "10.9.8.7"));
    assert!(!contains("10.0.0.0/8", "11.0.0.1"));
    assert!(contains("192.168.1.7", "192.168.1.7"));
    assert!(!contains("192.168.1.7", "192.168.1.6"));
    assert!(contains("0.0.0.0/0", "203.0.113.9"));
    assert!(!contains("0.0.0.0/0", "2001:db8::1"));
    assert!(contains("fd00::/8, ::1", "fd12::9"));
    assert!(contains("fd00::/8, ::1", "::1"));
    assert!(!contains("", "127.0.0.1"));
    // A socket for both families reports IPv4 clients in this form.
    assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
}

#[test]
fn what_is_not_a_network_is_refused() {
    for text in ["10.0.0.0/33", "10.0.0", "::1/129", "localhost", "10.0.0.0/-1", "10.0.0.0/"] {
        assert!(text.parse::<Networks>().is_err(), "{text}");
    }
}

#[test]
fn an_ipv6_client_is_counted_by_its_network() {
    let group = |text: &str| AddressGroup::of(text.parse().unwrap());
    assert_eq!(group("2001:db8:1:2:3::4"), group("2001:db8:1:2:ffff::9"));
    assert_ne!(group("2001:db8:1:2::4"), group("2001:db8:1:3::4"));
    assert_ne!(group("192.0.2.1"), group("192.0.2.2"));
    assert_eq!(group("::ffff:192.0.2.1"), group("192.0.2.1"));
}
