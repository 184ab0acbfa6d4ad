//! Stored bytes, and bytes that nobody has stored.

use super::*;

const BYTES_MAX: usize = 64;

#[test]
fn ends_come_back_as_they_were() {
    let all = [
        Ended::Succeeded(Bytes::from_static(b"")),
        Ended::Succeeded(Bytes::from_static(b"\0value")),
        Ended::Refused("no seats".into()),
        Ended::Failed("half of it".into()),
        Ended::Undone("charge: declined".into()),
    ];
    for end in all {
        assert_eq!(Ended::of_outcome(&end.to_outcome(BYTES_MAX)), Some(end));
    }
}

/// Golden: no line is ever edited.
#[test]
fn the_stored_bytes_are_these() {
    assert_eq!(&Ended::Succeeded("v".into()).to_outcome(BYTES_MAX).body()[..], b"sv");
    assert_eq!(&Ended::Refused("v".into()).to_outcome(BYTES_MAX).body()[..], b"rv");
    assert_eq!(&Ended::Failed("v".into()).to_outcome(BYTES_MAX).body()[..], b"fv");
    assert_eq!(&Ended::Undone("v".into()).to_outcome(BYTES_MAX).body()[..], b"uv");
    assert_eq!(&encode_list(&["a".into(), Bytes::new()])[..], b"\0\0\0\x01a\0\0\0\0");
    let envelope = Envelope { version: 2, digest: [7; 32], input: "i".into() }.encode();
    assert_eq!(envelope[..5], [1, 0, 0, 0, 2]);
    assert_eq!(envelope[5..37], [7; 32]);
    assert_eq!(envelope[37..], *b"i");
}

#[test]
fn a_value_beyond_the_bound_is_a_failure_that_says_so() {
    let outcome = Ended::Succeeded(vec![0; BYTES_MAX].into()).to_outcome(BYTES_MAX);
    let Some(Ended::Failed(reason)) = Ended::of_outcome(&outcome) else { panic!("{outcome:?}") };
    assert!(reason.starts_with("the step returned 64 bytes and at most 63"), "{reason}");
    assert!(outcome.body().len() <= BYTES_MAX);
    let fits = Ended::Succeeded(vec![0; BYTES_MAX - 1].into());
    assert_eq!(Ended::of_outcome(&fits.to_outcome(BYTES_MAX)), Some(fits));
}

#[test]
fn foreign_bytes_are_refused() {
    for outcome in
        [Outcome::succeeded(""), Outcome::succeeded("x"), Outcome::failed("s"), Outcome::succeeded("f")]
    {
        assert_eq!(Ended::of_outcome(&outcome), None);
    }
    for bytes in [&b""[..], b"\x02", &[1; 36], &[0; 64]] {
        assert!(Envelope::decode(&Bytes::copy_from_slice(bytes)).is_err());
    }
    for bytes in [&b"\0"[..], b"\0\0\0\x02a", b"\xff\xff\xff\xff"] {
        assert!(decode_list(&Bytes::copy_from_slice(bytes)).is_err());
    }
    let items = vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bcd")];
    assert_eq!(decode_list(&encode_list(&items)).unwrap(), items);
}
