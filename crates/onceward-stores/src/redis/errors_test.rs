use super::*;

#[test]
fn answers_of_the_server_are_explained() {
    let cases = [
        ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Full, "maxmemory"),
        ("READONLY You can't write against a read only replica.", ErrorKind::Unavailable, "primary"),
        ("WRONGPASS invalid username-password pair", ErrorKind::Invalid, "password"),
        ("ERR DB index is out of range", ErrorKind::Invalid, "database"),
        ("WRONGTYPE Operation against a key", ErrorKind::Foreign, "prefix"),
        ("ERR something new", ErrorKind::Unavailable, "refused"),
    ];
    for (message, kind, word) in cases {
        let error = failed_in_script("Redis at a:1", message).unwrap();
        assert_eq!(error.kind(), kind, "{message}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.applied(), onceward::Applied::No);
    }
    assert!(failed_in_script("Redis at a:1", "").is_none());
}

#[test]
fn without_an_answer_a_write_may_have_happened() {
    let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
    let written = failed("Redis at a:1", CallEffect::Writes, lost());
    assert_eq!(written.applied(), onceward::Applied::Maybe);
    assert_eq!(failed("Redis at a:1", CallEffect::Reads, lost()).applied(), onceward::Applied::No);
}
