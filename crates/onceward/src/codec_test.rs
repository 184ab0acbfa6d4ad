//! Golden bytes for every state, so that a later version must read today's; and properties: whatever
//! the bytes are, the result is a receipt or a clear error.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::store::{Due, State};

/// Written by format 1. These lines may grow in number; none may ever change.
#[rustfmt::skip]
const GOLDEN: &[(&str, &str)] = &[
    ("held, just claimed", "010103abababababababababababababababababababababababababababababababab44332211000000000000000000000000000000000000000000150bbc2d"),
    ("held, renewed", "010103abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201010ad81125"),
    ("done, succeeded", "010203abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020100000000000000000000040000007061696415df4e56"),
    ("done, failed", "010203abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201010060d71d1400000000080000006465636c696e6564b7fbd1ed"),
    ("done, omitted", "010203abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020100ffffffffffffffff010300000032303120191cd9"),
    ("done, empty", "010203abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010000000000000000000000000000a2a3f41d"),
    ("unknown, lease ended", "010303abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201007ee38e80"),
    ("unknown, reported", "010303abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020101e8d389f7"),
    ("unknown, panicked", "010303abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201025282806e"),
    ("unknown, dropped", "010303abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020103c4b28719"),
    ("gone", "01044d0000000000000078853ce3"),
];

#[test]
fn golden_bytes_are_written_and_read() {
    let samples = samples();
    assert_eq!(GOLDEN.len(), samples.len(), "{}", golden_lines(&samples));
    for ((name, status), (golden_name, golden)) in samples.iter().zip(GOLDEN) {
        assert_eq!(name, golden_name);
        assert_eq!(&hex(&encode(status)), golden, "{name} is written differently now");
        let read = decode(&found(status.state(), unhex(golden))).unwrap();
        assert_eq!(&with_own_fence(status.clone()), &read.status, "{name} is read differently now");
    }
}

#[test]
fn a_newer_format_says_so() {
    let error = decode(&found(State::Held, vec![2, 0, 0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("format 2") && error.to_string().contains("upgrade"), "{error}");
}

#[test]
fn a_record_filed_under_another_state_is_refused() {
    let bytes = encode(&samples()[0].1).to_vec();
    let error = decode(&found(State::Done, bytes)).unwrap_err();
    assert!(error.to_string().contains("filed as done but its bytes say held"), "{error}");
}

#[test]
fn every_truncation_is_a_clear_error() {
    for (name, status) in samples() {
        let bytes = encode(&status);
        for len in 0..bytes.len() {
            let error = decode(&found(status.state(), bytes[..len].to_vec())).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Damaged);
        }
    }
}

#[test]
fn every_flipped_bit_is_a_clear_error() {
    for (name, status) in samples() {
        let bytes = encode(&status);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode(&found(status.state(), flipped)).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Damaged, "{name}, bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(status in any_status(), version in 1..u64::MAX) {
        let found = Found {
            version: Version(version), state: status.state(), due: Due::Never, bytes: encode(&status),
        };
        let read = decode(&found).unwrap();
        let mut expected = status;
        fix_fence(&mut expected, version);
        prop_assert_eq!(read.status, expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), state in 0..4usize) {
        let _ = decode(&found(State::ALL[state], bytes));
    }

    /// Past the checksum too: the fields behind it are checked on their own.
    #[test]
    fn arbitrary_fields_under_a_valid_checksum_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), state in 0..4usize, tag in 0..6u8,
    ) {
        let mut whole = vec![1, tag];
        whole.append(&mut bytes);
        let checksum = crc32fast::hash(&whole);
        whole.extend(checksum.to_le_bytes());
        if let Err(error) = decode(&found(State::ALL[state], whole)) {
            prop_assert_eq!(error.kind(), ErrorKind::Damaged);
        }
    }
}

fn samples() -> Vec<(&'static str, Status)> {
    let fresh = claim(FENCE_IS_VERSION);
    let fenced = claim(Fence(0x0102_0304_0506_0708));
    let day = Some(Retention::For(Duration::from_hours(24)));
    let done = |outcome, tombstone| Status::Done(Done { claim: fenced, outcome, tombstone });
    let unknown = |doubt| Status::Unknown(Unknown { claim: fenced, doubt });
    vec![
        ("held, just claimed", Status::Held(Held { claim: fresh, on_unknown: OnUnknown::Hold })),
        ("held, renewed", Status::Held(Held { claim: fenced, on_unknown: OnUnknown::Retry })),
        ("done, succeeded", done(Outcome::succeeded("paid"), None)),
        ("done, failed", done(Outcome::failed("declined"), day)),
        ("done, omitted", done(Outcome::omitted(Verdict::Succeeded, "201"), Some(Retention::Forever))),
        ("done, empty", done(Outcome::succeeded(""), None)),
        ("unknown, lease ended", unknown(Doubt::LeaseEnded)),
        ("unknown, reported", unknown(Doubt::Reported)),
        ("unknown, panicked", unknown(Doubt::Panicked)),
        ("unknown, dropped", unknown(Doubt::Dropped)),
        ("gone", Status::Gone(Gone { fence: Fence(77) })),
    ]
}

const OWN_VERSION: u64 = 42;

fn claim(fence: Fence) -> Claim {
    Claim { fingerprint: Fingerprint::new(3, [0xab; 32]), attempt: Attempt(0x1122_3344), fence }
}

fn found(state: State, bytes: Vec<u8>) -> Found {
    Found { version: Version(OWN_VERSION), state, due: Due::Never, bytes: bytes.into() }
}

fn with_own_fence(mut status: Status) -> Status {
    fix_fence(&mut status, OWN_VERSION);
    status
}

fn fix_fence(status: &mut Status, version: u64) {
    let claim = match status {
        Status::Held(held) => &mut held.claim,
        Status::Done(done) => &mut done.claim,
        Status::Unknown(unknown) => &mut unknown.claim,
        Status::Gone(_) => return,
    };
    if claim.fence == FENCE_IS_VERSION {
        claim.fence = Fence(version);
    }
}

fn any_status() -> impl Strategy<Value = Status> {
    let claims = (any::<u8>(), any::<[u8; 32]>(), any::<u128>(), any::<u64>()).prop_map(
        |(v, digest, attempt, fence)| Claim {
            fingerprint: Fingerprint::new(v, digest),
            attempt: Attempt(attempt),
            fence: Fence(fence),
        },
    );
    let body = prop::collection::vec(any::<u8>(), 0..300);
    let tombstones = prop_oneof![
        Just(None),
        Just(Some(Retention::Forever)),
        (1..u64::MAX).prop_map(|micros| Some(Retention::For(Duration::from_micros(micros)))),
    ];
    (claims, 0..11u8, body, tombstones).prop_map(|(claim, kind, body, tombstone)| {
        let done = |outcome| Status::Done(Done { claim, outcome, tombstone });
        match kind {
            0 => Status::Held(Held { claim, on_unknown: OnUnknown::Hold }),
            1 => Status::Held(Held { claim, on_unknown: OnUnknown::Retry }),
            2 => done(Outcome::succeeded(body)),
            3 => done(Outcome::failed(body)),
            4 => done(Outcome::omitted(Verdict::Succeeded, body)),
            5 => done(Outcome::omitted(Verdict::Failed, body)),
            6 => Status::Unknown(Unknown { claim, doubt: Doubt::LeaseEnded }),
            7 => Status::Unknown(Unknown { claim, doubt: Doubt::Reported }),
            8 => Status::Unknown(Unknown { claim, doubt: Doubt::Panicked }),
            9 => Status::Unknown(Unknown { claim, doubt: Doubt::Dropped }),
            _ => Status::Gone(Gone { fence: claim.fence }),
        }
    })
}

/// What a new golden line would look like, for whoever adds a state.
fn golden_lines(samples: &[(&str, Status)]) -> String {
    samples.iter().fold(String::new(), |mut lines, (name, status)| {
        writeln!(lines, "    (\"{name}\", \"{}\"),", hex(&encode(status))).unwrap();
        lines
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
