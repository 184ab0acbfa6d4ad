//! Golden bytes for every state, so that a later version must read today's; and properties: whatever
//! the bytes are, the result is a receipt or a clear error.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::store::{Age, Due, State};

/// Written by format 2. From the first release on, these lines may grow in number; none may ever change.
#[rustfmt::skip]
const GOLDEN: &[(&str, &str)] = &[
    ("held, just claimed", "02010003abababababababababababababababababababababababababababababababab443322110000000000000000000000000000000000000000bd184877"),
    ("held, renewed", "02010103abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201622561fd"),
    ("held, by a ticket", "02010203abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201d7352822"),
    ("held, after a settlement", "02012003abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302019df30b59"),
    ("held, after an unknown outcome", "02010503abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302016f1d0c0d"),
    ("held, late effect", "02010803abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020160ea00009ae2c7a8"),
    ("held, with input", "02011d03abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020107000000030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327da05a1961"),
    ("done, succeeded", "02020003abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010400000070616964efdbbf44"),
    ("done, failed", "02020903abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010060d71d14000000080000006465636c696e6564c72574e2"),
    ("done, omitted", "02020a03abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201ffffffffffffffff030000003230312b9c02bb"),
    ("done, omitted failure", "02020303abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020103000000343032bee2fe03"),
    ("done, empty", "02020003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020100000000ccefc976"),
    ("done, input kept", "02021003abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010400000070616964030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327d4da61fc6"),
    ("done, cancelled", "02020403abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010100000000782c7ae4"),
    ("done, discarded", "02020403abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010100000001ee1c7d93"),
    ("done, undone", "02020403abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010100000002544d740a"),
    ("unknown, lease ended", "02030003abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201007290d956"),
    ("unknown, reported", "02030003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020101e4a0de21"),
    ("unknown, panicked", "02030803abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010260ea00005a2808c2"),
    ("unknown, dropped", "02031003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020103030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327d4946f9ac"),
    ("unknown, after an unknown outcome", "02030403abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010161b19f5f"),
    ("gone", "0204004d000000000000006b7f9888"),
    ("waiting, never begun", "02051003abababababababababababababababababababababababababababababababab00000000000000000000000000000000000000000000000000000000000005000000696e70757444752f45"),
    ("waiting, for another try", "02051403abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327d5f4f0cb5"),
    ("waiting, settled", "02052003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020118e24a27"),
    ("dead", "02061003abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327de69b2ae1"),
    ("dead, after an unknown outcome", "02061403abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327d6ca0d22b"),
    ("dead, after an unknown outcome that is retried", "02061503abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327dae2dd4f4"),
    ("unknown, with a note", "02034803abababababababababababababababababababababababababababababababab4433221100000000000000000000000008070605040302010160ea00001800746865207365727669636520616e737765726564203530341a972e51"),
    ("dead, with a note and no input", "02064403abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020109006e6f20616e73776572350dfe31"),
    ("dead, erased", "02060003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020167353372"),
    ("held, second try", "0201a003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020102005fffaa4a"),
    ("done, second try", "02028003abababababababababababababababababababababababababababababababab44332211000000000000000000000000080706050403020102000400000070616964c3c2803c"),
    ("waiting, late effect", "02058c03abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201ffff60ea00004f0d3448"),
    ("dead, late effect", "0206dd03abababababababababababababababababababababababababababababababab443322110000000000000000000000000807060504030201020060ea000009006e6f20616e73776572030002000f0035303320e28093207370c3a47465720d0000007b22616d6f756e74223a31327d8ad42160"),
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
    let error = decode(&found(State::Held, vec![3, 0, 0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("format 3") && error.to_string().contains("upgrade"), "{error}");
}

#[test]
fn the_unreleased_format_says_so() {
    let mut bytes = vec![1, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    let error = decode(&found(State::Gone, bytes)).unwrap_err();
    assert!(error.to_string().contains("format 1, which was never released"), "{error}");
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
            version: Version(version), state: status.state(), due: Due::Never, age: Age::default(),
            bytes: encode(&status),
        };
        let read = decode(&found).unwrap();
        let mut expected = status;
        fix_fence(&mut expected, version);
        prop_assert_eq!(read.status, expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), state in 0..6usize) {
        let _ = decode(&found(State::ALL[state], bytes));
    }

    /// Past the checksum too: the fields behind it are checked on their own.
    #[test]
    fn arbitrary_fields_under_a_valid_checksum_never_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), state in 0..6usize, tag in 0..8u8, flags in any::<u8>(),
    ) {
        let mut whole = vec![FORMAT, tag, flags];
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
    let done = |end, tombstone, job| Status::Done(Done { claim: fenced, end, tombstone, job });
    let outcome = |outcome, tombstone| done(End::Outcome(outcome), tombstone, None);
    let closed = |closed| done(End::Closed(closed), None, None);
    let unknown = |reason, late_ms, job| {
        let late_effect_max = Duration::from_millis(late_ms);
        let (prior, note) = (Prior::Nothing, String::new());
        Status::Unknown(Unknown { claim: fenced, reason, prior, late_effect_max, note, job })
    };
    let held = |claim, on_unknown, owner, prior, late_ms, job| {
        let late_effect_max = Duration::from_millis(late_ms);
        Status::Held(Held { claim, on_unknown, owner, prior, late_effect_max, job })
    };
    let mut samples = vec![
        ("held, just claimed", held(fresh, OnUnknown::Hold, Owner::Run, Prior::Nothing, 0, None)),
        ("held, renewed", held(fenced, OnUnknown::Retry, Owner::Run, Prior::Nothing, 0, None)),
        ("held, by a ticket", held(fenced, OnUnknown::Hold, Owner::Ticket, Prior::Nothing, 0, None)),
        ("held, after a settlement", held(fenced, OnUnknown::Hold, Owner::Run, Prior::Settled, 0, None)),
        (
            "held, after an unknown outcome",
            held(fenced, OnUnknown::Retry, Owner::Run, Prior::Unknown, 0, None),
        ),
        ("held, late effect", held(fenced, OnUnknown::Hold, Owner::Run, Prior::Nothing, 60_000, None)),
        ("held, with input", held(fenced, OnUnknown::Retry, Owner::Run, Prior::Unknown, 7, Some(job()))),
        ("done, succeeded", outcome(Outcome::succeeded("paid"), None)),
        ("done, failed", outcome(Outcome::failed("declined"), day)),
        ("done, omitted", outcome(Outcome::omitted(Verdict::Succeeded, "201"), Some(Retention::Forever))),
        ("done, omitted failure", outcome(Outcome::omitted(Verdict::Failed, "402"), None)),
        ("done, empty", outcome(Outcome::succeeded(""), None)),
        ("done, input kept", done(End::Outcome(Outcome::succeeded("paid")), None, Some(job()))),
        ("done, cancelled", closed(Closed::Cancelled)),
        ("done, discarded", closed(Closed::Discarded)),
        ("done, undone", closed(Closed::Undone)),
        ("unknown, lease ended", unknown(UnknownReason::LeaseEnded, 0, None)),
        ("unknown, reported", unknown(UnknownReason::Reported, 0, None)),
        ("unknown, panicked", unknown(UnknownReason::Panicked, 60_000, None)),
        ("unknown, dropped", unknown(UnknownReason::Dropped, 0, Some(job()))),
        (
            "unknown, after an unknown outcome",
            Status::Unknown(Unknown {
                claim: fenced,
                reason: UnknownReason::Reported,
                prior: Prior::Unknown,
                late_effect_max: Duration::ZERO,
                note: String::new(),
                job: None,
            }),
        ),
        ("gone", Status::Gone(Gone { fence: Fence(77) })),
    ];
    samples.extend(open_samples(fenced));
    samples.extend(samples_with_notes(fenced));
    samples.extend(later_samples(fenced));
    samples
}

fn waiting(claim: Claim, prior: Prior, late_ms: u64, job: Option<Arc<Job>>) -> Status {
    let late_effect_max = Duration::from_millis(late_ms);
    Status::Waiting(Waiting { claim, prior, late_effect_max, job })
}

fn open_samples(fenced: Claim) -> Vec<(&'static str, Status)> {
    let nobody = Claim { attempt: Attempt::NONE, tries: 0, ..claim(FENCE_IS_VERSION) };
    vec![
        (
            "waiting, never begun",
            Status::Waiting(Waiting {
                claim: nobody,
                prior: Prior::Nothing,
                late_effect_max: Duration::ZERO,
                job: Some(Arc::new(Job::new(Bytes::from_static(b"input")))),
            }),
        ),
        ("waiting, for another try", waiting(fenced, Prior::Unknown, 0, Some(job()))),
        ("waiting, settled", waiting(fenced, Prior::Settled, 0, None)),
        (
            "dead",
            Status::Dead(Dead {
                claim: fenced,
                prior: Prior::Nothing,
                on_unknown: OnUnknown::Hold,
                late_effect_max: Duration::ZERO,
                note: String::new(),
                job: Some(job()),
            }),
        ),
        (
            "dead, after an unknown outcome",
            Status::Dead(Dead {
                claim: fenced,
                prior: Prior::Unknown,
                on_unknown: OnUnknown::Hold,
                late_effect_max: Duration::ZERO,
                note: String::new(),
                job: Some(job()),
            }),
        ),
        (
            "dead, after an unknown outcome that is retried",
            Status::Dead(Dead {
                claim: fenced,
                prior: Prior::Unknown,
                on_unknown: OnUnknown::Retry,
                late_effect_max: Duration::ZERO,
                note: String::new(),
                job: Some(job()),
            }),
        ),
    ]
}

/// Forms that were added after the others.
fn later_samples(fenced: Claim) -> [(&'static str, Status); 4] {
    let second = Claim { tries: 2, ..fenced };
    let many = Claim { tries: u16::MAX, ..fenced };
    let paid = End::Outcome(Outcome::succeeded("paid"));
    [
        (
            "held, second try",
            Status::Held(Held {
                claim: second,
                on_unknown: OnUnknown::Hold,
                owner: Owner::Run,
                prior: Prior::Settled,
                late_effect_max: Duration::ZERO,
                job: None,
            }),
        ),
        ("done, second try", Status::Done(Done { claim: second, end: paid, tombstone: None, job: None })),
        ("waiting, late effect", waiting(many, Prior::Unknown, 60_000, None)),
        (
            "dead, late effect",
            Status::Dead(Dead {
                claim: second,
                prior: Prior::Unknown,
                on_unknown: OnUnknown::Retry,
                late_effect_max: Duration::from_secs(60),
                note: "no answer".into(),
                job: Some(job()),
            }),
        ),
    ]
}

fn samples_with_notes(fenced: Claim) -> [(&'static str, Status); 3] {
    [
        (
            "unknown, with a note",
            Status::Unknown(Unknown {
                claim: fenced,
                reason: UnknownReason::Reported,
                prior: Prior::Nothing,
                late_effect_max: Duration::from_secs(60),
                note: "the service answered 504".into(),
                job: None,
            }),
        ),
        (
            "dead, with a note and no input",
            Status::Dead(Dead {
                claim: fenced,
                prior: Prior::Unknown,
                on_unknown: OnUnknown::Hold,
                late_effect_max: Duration::ZERO,
                note: "no answer".into(),
                job: None,
            }),
        ),
        (
            "dead, erased",
            Status::Dead(Dead {
                claim: fenced,
                prior: Prior::Nothing,
                on_unknown: OnUnknown::Hold,
                late_effect_max: Duration::ZERO,
                note: String::new(),
                job: None,
            }),
        ),
    ]
}

fn job() -> Arc<Job> {
    let input = Bytes::from_static(b"{\"amount\":12}");
    Arc::new(Job { input, started: 3, finished: 2, note: "503 – später".into() })
}

const OWN_VERSION: u64 = 42;

fn claim(fence: Fence) -> Claim {
    Claim { fingerprint: Fingerprint::new(3, [0xab; 32]), attempt: Attempt(0x1122_3344), fence, tries: 1 }
}

fn found(state: State, bytes: Vec<u8>) -> Found {
    Found { version: Version(OWN_VERSION), state, due: Due::Never, age: Age::default(), bytes: bytes.into() }
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
        Status::Waiting(waiting) => &mut waiting.claim,
        Status::Dead(dead) => &mut dead.claim,
        Status::Gone(_) => return,
    };
    if claim.fence == FENCE_IS_VERSION {
        claim.fence = Fence(version);
    }
}

fn any_status() -> impl Strategy<Value = Status> {
    let claims = (any::<u8>(), any::<[u8; 32]>(), any::<u128>(), any::<u64>(), any::<u16>()).prop_map(
        |(v, digest, attempt, fence, tries)| Claim {
            fingerprint: Fingerprint::new(v, digest),
            attempt: Attempt(attempt),
            fence: Fence(fence),
            tries,
        },
    );
    let body = prop::collection::vec(any::<u8>(), 0..300);
    let tombstones = prop_oneof![
        Just(None),
        Just(Some(Retention::Forever)),
        (1..u64::MAX).prop_map(|micros| Some(Retention::For(Duration::from_micros(micros)))),
    ];
    let jobs = (any::<u16>(), any::<u16>(), "\\PC{0,40}", prop::collection::vec(any::<u8>(), 0..300));
    let jobs = jobs.prop_map(|(started, finished, note, input)| {
        Arc::new(Job { started, finished, note, input: input.into() })
    });
    let priors = prop_oneof![Just(Prior::Nothing), Just(Prior::Settled), Just(Prior::Unknown)];
    let (owners, rules) = (
        prop_oneof![Just(Owner::Run), Just(Owner::Ticket)],
        prop_oneof![Just(OnUnknown::Hold), Just(OnUnknown::Retry)],
    );
    let late = prop_oneof![Just(0), 1..=u32::MAX].prop_map(|ms| Duration::from_millis(ms.into()));
    let reasons = prop_oneof![
        Just(UnknownReason::LeaseEnded),
        Just(UnknownReason::Reported),
        Just(UnknownReason::Panicked),
        Just(UnknownReason::Dropped)
    ];
    let closed = prop_oneof![Just(Closed::Cancelled), Just(Closed::Discarded), Just(Closed::Undone)];
    let parts = (claims, 0..9u8, body, tombstones, jobs, any::<bool>());
    let more = (priors, owners, rules, late, reasons, closed, "\\PC{0,40}");
    (parts, more).prop_map(|((claim, kind, body, tombstone, job, with_job), more)| {
        let (prior, owner, on_unknown, late_effect_max, reason, closed, note) = more;
        let maybe_job = with_job.then(|| job.clone());
        let done = |end| Status::Done(Done { claim, end, tombstone, job: maybe_job.clone() });
        match kind {
            0 => Status::Held(Held { claim, on_unknown, owner, prior, late_effect_max, job: maybe_job }),
            1 => done(End::Outcome(Outcome::succeeded(body))),
            2 => done(End::Outcome(Outcome::failed(body))),
            3 => done(End::Outcome(Outcome::omitted(Verdict::Succeeded, body))),
            4 => done(End::Closed(closed)),
            5 => Status::Unknown(Unknown { claim, reason, prior, late_effect_max, note, job: maybe_job }),
            6 => Status::Waiting(Waiting { claim, prior, late_effect_max, job: maybe_job }),
            7 => Status::Dead(Dead { claim, prior, on_unknown, late_effect_max, note, job: maybe_job }),
            _ => Status::Gone(Gone { fence: claim.fence }),
        }
    })
}

/// What a new golden line would look like, for a state that is added.
fn golden_lines(samples: &[(&str, Status)]) -> String {
    samples.iter().fold(String::new(), |mut lines, (name, status)| {
        writeln!(lines, "    (\"{name}\", \"{}\"),", hex(&encode(status))).unwrap();
        lines
    })
}

/// The golden bytes, as seeds for other tests.
pub(crate) fn golden_bytes() -> Vec<Vec<u8>> {
    GOLDEN.iter().map(|(_, golden)| unhex(golden)).collect()
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
