use super::*;

/// Stored bytes never change.
#[test]
fn golden() {
    let head = Head { state: State::Done, created_us: 1, updated_us: 0x0203, due_us: NEVER };
    let value = encoded(&head, &Record::new(State::Done, &b"receipt"[..]));
    let expected = [&b"oe1d\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\x03"[..], &[0xff; 8], b"receipt"];
    assert_eq!(value, expected.concat());
    let id = Id::new("s", "o", "k").unwrap();
    assert_eq!(super::head(&id, &value).unwrap(), head);
    let found = found(&head, 7, value, 0x0203);
    assert_eq!((found.version, &found.bytes[..]), (Version(7), &b"receipt"[..]));
    assert_eq!(found.due, Due::Never);
}

#[test]
fn what_cannot_be_read_says_why() {
    let id = Id::new("s", "o", "k").unwrap();
    for (value, kind) in [
        (&b"oe1z"[..], ErrorKind::Damaged),
        (b"oe2d\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\x03\0\0\0\0\0\0\0\0", ErrorKind::Damaged),
        (b"something else", ErrorKind::Foreign),
        (b"", ErrorKind::Foreign),
    ] {
        assert_eq!(head(&id, value).unwrap_err().kind(), kind, "{value:?}");
    }
}
