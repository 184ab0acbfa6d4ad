use super::*;

#[test]
fn old_and_broken_versions_are_refused() {
    for good in ["3.4.23", "3.5.3", "3.5.21", "3.6.0-rc.1", "4.0.0"] {
        fit("etcd", good).expect(good);
    }
    assert_eq!(fit("etcd", "3.3.27").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(fit("etcd", "what").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(fit("etcd", "3.5.1").unwrap_err().kind(), ErrorKind::Unfit);
}

#[test]
fn the_quota_is_found_among_the_metrics() {
    let metrics =
        "# TYPE etcd_server_quota_backend_bytes gauge\netcd_server_quota_backend_bytes 2.147483648e+09\n";
    assert_eq!(quota(metrics), Some(2 << 30));
    assert_eq!(quota(""), None);
}
