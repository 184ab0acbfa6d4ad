use super::*;

fn config(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()]).collect()
}

#[test]
fn only_a_log_that_is_always_synced_is_durable() {
    let cases = [
        ("yes", "always", "no", Durability::Always),
        ("yes", "always", "yes", Durability::NotDuringRewrites),
        ("yes", "everysec", "no", Durability::Syncs("everysec".to_owned())),
        ("no", "always", "no", Durability::NoLog),
    ];
    for (only, fsync, rewrite, expected) in cases {
        let said = [("appendonly", only), ("appendfsync", fsync), ("no-appendfsync-on-rewrite", rewrite)];
        assert_eq!(durability(&config(&said)), expected);
    }
    assert_eq!(durability(&[]), Durability::NotSaid);
    assert_eq!(durability(&config(&[("appendonly", "yes")])), Durability::NotSaid);
}

#[test]
fn unfit_servers_are_refused() {
    let info = |version: &str, role: &str, policy: &str| {
        format!("# Server\r\nredis_version:{version}\r\nrole:{role}\r\nmaxmemory_policy:{policy}\r\n")
    };
    assert!(fit("it", &info("6.2.0", "master", "noeviction")).is_ok());
    assert!(fit("it", &info("10.0.1", "master", "noeviction")).is_ok());
    let refused = [
        (info("6.0.16", "master", "noeviction"), ErrorKind::Invalid, "at least 6.2"),
        (info("7.0.15", "slave", "noeviction"), ErrorKind::Unavailable, "primary"),
        (info("7.0.15", "master", "allkeys-lru"), ErrorKind::Unfit, "allkeys-lru"),
        (info("7.0.15", "master", "volatile-ttl"), ErrorKind::Unfit, "noeviction"),
        ("redis_version:7.0.15".to_owned(), ErrorKind::Unfit, "not known"),
    ];
    for (info, kind, word) in refused {
        let error = fit("it", &info).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(word), "{error}");
    }
}
