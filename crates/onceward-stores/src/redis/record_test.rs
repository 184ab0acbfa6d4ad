use std::time::Duration;

use onceward::State;

use super::*;

/// Stored bytes never change.
#[test]
fn a_stored_record_is_read() {
    let id = Id::new("tenant", "POST /charges", "1").unwrap();
    let mut value = b"ow1h\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\x01\xf4\0\0\0\0\0\0\x0b\xb8receipt".to_vec();
    let read = found(&id, value.clone(), 2_000).unwrap();
    assert_eq!((read.version, read.state), (Version(1_000), State::Held));
    assert_eq!(read.due, Due::In(Duration::from_micros(1_000)));
    assert_eq!(read.age.created, Duration::from_micros(1_500));
    assert_eq!(&read.bytes[..], b"receipt");
    value[20..28].fill(0xff);
    assert_eq!(found(&id, value.clone(), 2_000).unwrap().due, Due::Never);
    value.truncate(28);
    assert!(found(&id, value.clone(), 2_000).unwrap().bytes.is_empty());
    value.truncate(27);
    assert_eq!(found(&id, value, 2_000).unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn values_of_others_are_refused() {
    let id = Id::new("tenant", "POST /charges", "1").unwrap();
    let of_a_later_state = b"ow1z\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\x01\xf4\0\0\0\0\0\0\x0b\xb8".to_vec();
    assert_eq!(found(&id, of_a_later_state, 0).unwrap_err().kind(), ErrorKind::Damaged);
    for value in [&b""[..], b"17", b"a session of somebody else's, long enough to be a record"] {
        assert_eq!(found(&id, value.to_vec(), 0).unwrap_err().kind(), ErrorKind::Foreign);
    }
}
