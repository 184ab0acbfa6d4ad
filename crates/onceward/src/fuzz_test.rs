//! Hostile bytes for the receipt codec and for ids.

use onceward_fuzz::Fuzz;

use crate::codec;
use crate::id::Id;
use crate::store::{Age, Due, Found, State, Version};

fn found(state: State, bytes: Vec<u8>) -> Found {
    Found::new(Version(42), state, Due::Never, Age::default(), bytes)
}

/// The state that a record is filed under is its second byte's, so that the bytes themselves are read.
fn state_of(bytes: &[u8]) -> State {
    match bytes.get(1) {
        Some(2) => State::Done,
        Some(3) => State::Unknown,
        Some(4) => State::Gone,
        Some(5) => State::Waiting,
        Some(6) => State::Dead,
        _ => State::Held,
    }
}

#[test]
fn fuzz_receipt() {
    let seeds = codec::tests::golden_bytes();
    Fuzz::new("receipt").with_seeds(seeds).run(|input| {
        let mut bytes = input.to_vec();
        // The checksum is right in half of them, so that what is behind it is read.
        if let Some(checked) = bytes.len().checked_sub(4).filter(|_| input.len() % 2 == 0) {
            let sum = crc32fast::hash(&bytes[..checked]);
            bytes[checked..].copy_from_slice(&sum.to_le_bytes());
        }
        match codec::decode(&found(state_of(&bytes), bytes)) {
            Err(error) => error.to_string(),
            Ok(receipt) => {
                let again = codec::encode(&receipt.status).to_vec();
                let read =
                    codec::decode(&found(receipt.status.state(), again)).expect("what was written is read");
                assert_eq!(read.status, receipt.status);
                format!(
                    "{:?} {:?}",
                    receipt.status.state(),
                    receipt.status.outcome().map(crate::Outcome::verdict)
                )
            }
        }
    });
}

#[test]
fn fuzz_id() {
    let seeds = ["acme\nPOST /charges\norder-81", "s\no\nk", "s\nsteps\u{1}charge\nk"];
    Fuzz::new("id").with_seeds(seeds).with_words(&[b"\n", b"\x01", b"\x1f", b"/"]).run(|input| {
        let text = String::from_utf8_lossy(input);
        let mut parts = text.splitn(3, '\n');
        let mut part = || parts.next().unwrap_or_default();
        match Id::from_columns(part(), part(), part()) {
            Err(error) => error.to_string(),
            Ok(id) => {
                let step = id.step("charge").map_err(|error| error.to_string());
                if let Ok(step) = &step {
                    assert_eq!(step.parent().as_ref(), Some(&id));
                }
                format!("{} {}", id.is_step(), step.is_ok())
            }
        }
    });
}
