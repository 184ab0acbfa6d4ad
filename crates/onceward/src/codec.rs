//! The stored bytes of a receipt; all of them are described here and nowhere else.
//!
//! ```text
//! byte 0      format, 1
//! byte 1      state: 1 held, 2 done, 3 unknown, 4 gone
//! …           what belongs to the state, integers little endian
//! last 4      CRC-32 of everything before
//!
//! claim       fingerprint version 1 · digest 32 · attempt 16 · fence 8 (0: the record's own version)
//! held        claim · on_unknown 1 (0 hold, 1 retry)
//! done        claim · verdict 1 (0 succeeded, 1 failed) · tombstone µs 8 (0 none, max for ever)
//!             · snapshot 1 (0 kept, 1 omitted) · length 4 · body or note
//! unknown     claim · doubt 1 (0 lease ended, 1 reported, 2 panicked, 3 dropped)
//! gone        fence 8
//! ```
//!
//! A claim cannot know its own fence, because that is the version the store gives to this very write;
//! hence the 0. Every later version of this crate must read these bytes: the golden tests say so.

use std::time::Duration;

use bytes::{BufMut, Bytes};

use crate::error::{Error, ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::outcome::{Outcome, Snapshot, Verdict};
use crate::policy::{OnUnknown, Retention};
use crate::receipt::{Attempt, Claim, Done, Doubt, Fence, Gone, Held, Receipt, Status, Unknown};
use crate::store::{Found, Version};

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 2;
const CLAIM_BYTES: usize = 1 + Fingerprint::DIGEST_BYTES + 16 + 8;
const DONE_BYTES: usize = CLAIM_BYTES + 1 + 8 + 1 + 4;
const CHECKSUM_BYTES: usize = 4;

/// The fence of a claim that is being written: the record's own version.
pub(crate) const FENCE_IS_VERSION: Fence = Fence(0);

/// Encodes a status for the store.
pub fn encode(status: &Status) -> Bytes {
    let body_len = match status {
        Status::Held(_) | Status::Unknown(_) => CLAIM_BYTES + 1,
        Status::Done(done) => DONE_BYTES + snapshot_bytes(&done.outcome).len(),
        Status::Gone(_) => 8,
    };
    // Small records, which is most of them, live inside their one allocation: a store that keeps a
    // reference to the bytes then costs no second one. The sizes are those that fill an allocator's size
    // classes once three words of bookkeeping are added: a store in memory keeps millions of them.
    match HEAD_BYTES + body_len + CHECKSUM_BYTES {
        len if len <= 64 => Inline::<64>::write(status, len),
        len if len <= 104 => Inline::<104>::write(status, len),
        len if len <= 136 => Inline::<136>::write(status, len),
        len if len <= 168 => Inline::<168>::write(status, len),
        len if len <= 200 => Inline::<200>::write(status, len),
        len if len <= 232 => Inline::<232>::write(status, len),
        len if len <= 296 => Inline::<296>::write(status, len),
        len => {
            let mut out = vec![0; len];
            write(status, &mut out);
            Bytes::from(out)
        }
    }
}

struct Inline<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Inline<N> {
    fn write(status: &Status, len: usize) -> Bytes {
        let mut inline = Self { bytes: [0; N], len };
        write(status, &mut inline.bytes[..len]);
        Bytes::from_owner(inline)
    }
}

impl<const N: usize> AsRef<[u8]> for Inline<N> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Fills `out`, which is exactly as long as the encoded status.
fn write(status: &Status, out: &mut [u8]) {
    let (content, checksum) = out.split_at_mut(out.len() - CHECKSUM_BYTES);
    let mut out = &mut *content;
    out.put_u8(FORMAT);
    match status {
        Status::Held(held) => {
            out.put_u8(1);
            put_claim(&mut out, &held.claim);
            out.put_u8(match held.on_unknown {
                OnUnknown::Hold => 0,
                OnUnknown::Retry => 1,
            });
        }
        Status::Done(done) => {
            out.put_u8(2);
            put_claim(&mut out, &done.claim);
            out.put_u8(match done.outcome.verdict() {
                Verdict::Succeeded => 0,
                Verdict::Failed => 1,
            });
            out.put_u64_le(match done.tombstone {
                None => 0,
                Some(Retention::Forever) => u64::MAX,
                Some(Retention::For(duration)) => {
                    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1)
                }
            });
            out.put_u8(match done.outcome.snapshot() {
                Snapshot::Kept(_) => 0,
                Snapshot::Omitted(_) => 1,
            });
            let body = snapshot_bytes(&done.outcome);
            out.put_u32_le(u32::try_from(body.len()).expect("bodies are bounded far below 4 GiB"));
            out.put_slice(body);
        }
        Status::Unknown(unknown) => {
            out.put_u8(3);
            put_claim(&mut out, &unknown.claim);
            out.put_u8(match unknown.doubt {
                Doubt::LeaseEnded => 0,
                Doubt::Reported => 1,
                Doubt::Panicked => 2,
                Doubt::Dropped => 3,
            });
        }
        Status::Gone(gone) => {
            out.put_u8(4);
            out.put_u64_le(gone.fence.0);
        }
    }
    debug_assert!(out.is_empty(), "the length was computed for something else");
    checksum.copy_from_slice(&crc32fast::hash(content).to_le_bytes());
}

/// Decodes what a store found. Whatever the bytes are, the result is a receipt or a clear error.
pub fn decode(found: &Found) -> Result<Receipt> {
    let status = decode_status(&found.bytes, found.version)?;
    if status.state() != found.state {
        return Err(damaged(format!(
            "the record is filed as {} but its bytes say {}",
            found.state.name(),
            status.state().name()
        )));
    }
    Ok(Receipt { version: found.version, due: found.due, status })
}

fn decode_status(bytes: &Bytes, version: Version) -> Result<Status> {
    let Some((&format, _)) = bytes.split_first() else { return Err(damaged("it is empty")) };
    if format > FORMAT {
        // Said before the checksum: a newer format may not even have one in this place.
        return Err(damaged(format!(
            "it has format {format}, this version reads up to {FORMAT}; upgrade onceward"
        )));
    }
    let Some(checked_len) = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|len| *len >= HEAD_BYTES) else {
        return Err(damaged("it is cut off"));
    };
    let expected = u32::from_le_bytes(bytes[checked_len..].try_into().expect("four bytes"));
    if crc32fast::hash(&bytes[..checked_len]) != expected {
        return Err(damaged("its checksum does not match"));
    }
    if format != FORMAT {
        return Err(damaged(format!("it has format {format}, which never existed")));
    }
    let mut input = Input { bytes, at: HEAD_BYTES, end: checked_len };
    let status = match bytes[1] {
        1 => Status::Held(Held {
            claim: input.claim(version)?,
            on_unknown: match input.u8()? {
                0 => OnUnknown::Hold,
                1 => OnUnknown::Retry,
                other => return Err(damaged(format!("unknown rule {other}"))),
            },
        }),
        2 => Status::Done(input.done(version)?),
        3 => Status::Unknown(Unknown {
            claim: input.claim(version)?,
            doubt: match input.u8()? {
                0 => Doubt::LeaseEnded,
                1 => Doubt::Reported,
                2 => Doubt::Panicked,
                3 => Doubt::Dropped,
                other => return Err(damaged(format!("unknown doubt {other}"))),
            },
        }),
        4 => Status::Gone(Gone { fence: Fence(input.u64()?) }),
        other => return Err(damaged(format!("unknown state {other}"))),
    };
    if input.at != input.end {
        return Err(damaged(format!("{} bytes too many", input.end - input.at)));
    }
    Ok(status)
}

fn put_claim(out: &mut impl BufMut, claim: &Claim) {
    out.put_u8(claim.fingerprint.version());
    out.put_slice(claim.fingerprint.digest());
    out.put_u128_le(claim.attempt.0);
    out.put_u64_le(claim.fence.0);
}

fn snapshot_bytes(outcome: &Outcome) -> &Bytes {
    match outcome.snapshot() {
        Snapshot::Kept(bytes) | Snapshot::Omitted(bytes) => bytes,
    }
}

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Damaged, format!("a stored receipt cannot be read: {why}"))
}

/// A cursor over checked bytes. Bodies are slices of the input, not copies.
struct Input<'a> {
    bytes: &'a Bytes,
    at: usize,
    end: usize,
}

impl Input<'_> {
    fn take(&mut self, len: usize) -> Result<std::ops::Range<usize>> {
        let from = self.at;
        let to =
            from.checked_add(len).filter(|to| *to <= self.end).ok_or_else(|| damaged("it is cut off"))?;
        self.at = to;
        Ok(from..to)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let range = self.take(N)?;
        Ok(self.bytes[range].try_into().expect("exactly N bytes"))
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn claim(&mut self, version: Version) -> Result<Claim> {
        let fingerprint = Fingerprint::new(self.u8()?, self.array()?);
        let attempt = Attempt(u128::from_le_bytes(self.array()?));
        let fence = match Fence(self.u64()?) {
            FENCE_IS_VERSION => Fence(version.0),
            fence => fence,
        };
        Ok(Claim { fingerprint, attempt, fence })
    }

    fn done(&mut self, version: Version) -> Result<Done> {
        let claim = self.claim(version)?;
        let verdict = match self.u8()? {
            0 => Verdict::Succeeded,
            1 => Verdict::Failed,
            other => return Err(damaged(format!("unknown verdict {other}"))),
        };
        let tombstone = match self.u64()? {
            0 => None,
            u64::MAX => Some(Retention::Forever),
            micros => Some(Retention::For(Duration::from_micros(micros))),
        };
        let kind = self.u8()?;
        let len = u32::from_le_bytes(self.array()?);
        let range = self.take(usize::try_from(len).map_err(|_| damaged("it is cut off"))?)?;
        let body = self.bytes.slice(range);
        let outcome = match (kind, verdict) {
            (0, Verdict::Succeeded) => Outcome::succeeded(body),
            (0, Verdict::Failed) => Outcome::failed(body),
            (1, verdict) => Outcome::omitted(verdict, body),
            (other, _) => return Err(damaged(format!("unknown snapshot {other}"))),
        };
        Ok(Done { claim, outcome, tombstone })
    }
}

#[cfg(test)]
#[path = "codec_test.rs"]
mod tests;
