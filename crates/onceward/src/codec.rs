//! The stored bytes of a receipt; all of them are described here and nowhere else.
//!
//! ```text
//! byte 0      format, 2
//! byte 1      state: 1 held, 2 done, 3 unknown, 4 gone, 5 waiting, 6 dead
//! byte 2      flags of the state, below; all others are 0
//! …           what belongs to the state, integers little endian
//! last 4      CRC-32 of everything before
//!
//! waiting     claim · late · job           flags: prior, late, job, tries
//! held        claim · late · job           flags: retry, ticket, prior, late, job, tries
//!             (prior: settled, or unknown, or neither)
//! done        claim · tombstone · end · job
//!                                          flags: failed, omitted, closed, tombstone, job,
//!                                          tries
//! unknown     claim · reason 1 · late · note · job
//!                                          flags: prior, late, note, job, tries
//!             (reason: 0 lease ended, 1 reported, 2 panicked, 3 dropped)
//! dead        claim · late · note · job    flags: retry, prior, late, note, job, tries
//! gone        fence 8
//!
//! claim       fingerprint version 1 · digest 32 · attempt 16 · fence 8 (0: the record's own version)
//!             · tries 2, only with its flag; without it 1, or 0 if the attempt is nobody's
//! late        milliseconds 4, only with its flag
//! tombstone   µs 8 (max: forever), only with its flag
//! end         length 4 · body or note; if closed: length 4 · 1 (0 cancelled, 1 discarded, 2 undone)
//! note        length 2 · text, only with its flag
//! job         started 2 · finished 2 · note length 2 · note · input length 4 · input, only with its flag
//! ```
//!
//! A claim cannot know its own fence, because that is the version the store gives to this very write;
//! hence the 0. Every later version of this crate must read these bytes: the golden tests say so. Format 1
//! was never released.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};

use crate::error::{Error, ErrorKind, Result};
use crate::fingerprint::Fingerprint;
use crate::outcome::{Outcome, Snapshot, Verdict};
use crate::policy::{OnUnknown, Retention};
use crate::receipt::{
    Attempt, Claim, Closed, Dead, Done, End, Fence, Gone, Held, Job, Owner, Prior, Receipt, Status, Unknown,
    UnknownReason, Waiting,
};
use crate::store::{Found, Version};

const FORMAT: u8 = 2;
const HEAD_BYTES: usize = 3;
const CLAIM_BYTES: usize = 1 + Fingerprint::DIGEST_BYTES + 16 + 8;
const TRIES_BYTES: usize = 2;
const LATE_BYTES: usize = 4;
const TOMBSTONE_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;
const NOTE_LENGTH_BYTES: usize = 2;
const JOB_BYTES: usize = 2 + 2 + 2 + LENGTH_BYTES;
const CHECKSUM_BYTES: usize = 4;

/// The fence of a claim that is being written: the record's own version.
pub(crate) const FENCE_IS_VERSION: Fence = Fence(0);

mod flag {
    pub(super) const RETRY: u8 = 1;
    pub(super) const FAILED: u8 = 1;
    pub(super) const TICKET: u8 = 1 << 1;
    pub(super) const OMITTED: u8 = 1 << 1;
    pub(super) const PRIOR_UNKNOWN: u8 = 1 << 2;
    pub(super) const CLOSED: u8 = 1 << 2;
    pub(super) const LATE: u8 = 1 << 3;
    pub(super) const TOMBSTONE: u8 = 1 << 3;
    pub(super) const JOB: u8 = 1 << 4;
    pub(super) const SETTLED: u8 = 1 << 5;
    pub(super) const NOTE: u8 = 1 << 6;
    pub(super) const TRIES: u8 = 1 << 7;
}

/// Encodes a status for the store.
pub fn encode(status: &Status) -> Bytes {
    encode_parts(&match status {
        Status::Waiting(waiting) => Parts::Waiting(waiting),
        Status::Held(held) => Parts::Held(held),
        Status::Done(done) => Parts::Done(done),
        Status::Unknown(unknown) => Parts::Unknown(unknown),
        Status::Dead(dead) => Parts::Dead(dead),
        Status::Gone(gone) => Parts::Gone(gone),
    })
}

/// The same of a claim that nobody has made a status of: most records that are written are claims.
pub(crate) fn encode_held(held: &Held) -> Bytes {
    encode_parts(&Parts::Held(held))
}

/// A status, wherever what belongs to it is kept.
enum Parts<'a> {
    Waiting(&'a Waiting),
    Held(&'a Held),
    Done(&'a Done),
    Unknown(&'a Unknown),
    Dead(&'a Dead),
    Gone(&'a Gone),
}

impl Parts<'_> {
    fn job(&self) -> Option<&Job> {
        match self {
            Self::Waiting(Waiting { job, .. })
            | Self::Held(Held { job, .. })
            | Self::Done(Done { job, .. })
            | Self::Unknown(Unknown { job, .. })
            | Self::Dead(Dead { job, .. }) => job.as_deref(),
            Self::Gone(_) => None,
        }
    }

    fn claim(&self) -> Option<&Claim> {
        match self {
            Self::Waiting(Waiting { claim, .. })
            | Self::Held(Held { claim, .. })
            | Self::Done(Done { claim, .. })
            | Self::Unknown(Unknown { claim, .. })
            | Self::Dead(Dead { claim, .. }) => Some(claim),
            Self::Gone(_) => None,
        }
    }
}

fn encode_parts(status: &Parts<'_>) -> Bytes {
    let len = HEAD_BYTES + content_bytes(status) + CHECKSUM_BYTES;
    // Small records, which is most of them, live inside their one allocation: a store that keeps a
    // reference to the bytes then costs no second one. The sizes are those that fill an allocator's size
    // classes once three words of bookkeeping are added: a store in memory keeps millions of them.
    match len {
        len if len <= 72 => Inline::<72>::write(status, len),
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

fn content_bytes(status: &Parts<'_>) -> usize {
    let late = |late: Duration| if late.is_zero() { 0 } else { LATE_BYTES };
    let job = status.job().map_or(0, |job| JOB_BYTES + job.note.len() + job.input.len());
    let note = |note: &str| if note.is_empty() { 0 } else { NOTE_LENGTH_BYTES + note.len() };
    let tries = if status.claim().is_some_and(has_tries) { TRIES_BYTES } else { 0 };
    let content = match status {
        Parts::Waiting(waiting) => CLAIM_BYTES + late(waiting.late_effect_max) + job,
        Parts::Dead(dead) => CLAIM_BYTES + late(dead.late_effect_max) + note(&dead.note) + job,
        Parts::Held(held) => CLAIM_BYTES + late(held.late_effect_max) + job,
        Parts::Done(done) => {
            let tombstone = if done.tombstone.is_some() { TOMBSTONE_BYTES } else { 0 };
            CLAIM_BYTES + tombstone + LENGTH_BYTES + end_bytes(&done.end).len() + job
        }
        Parts::Unknown(unknown) => {
            CLAIM_BYTES + 1 + late(unknown.late_effect_max) + note(&unknown.note) + job
        }
        Parts::Gone(_) => 8,
    };
    content + tries
}

/// Whether the number of tries is written: almost every claim is the first.
fn has_tries(claim: &Claim) -> bool {
    claim.tries != usual_tries(claim.attempt)
}

fn usual_tries(attempt: Attempt) -> u16 {
    u16::from(attempt != Attempt::NONE)
}

struct Inline<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Inline<N> {
    fn write(status: &Parts<'_>, len: usize) -> Bytes {
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
fn write(status: &Parts<'_>, out: &mut [u8]) {
    let (content, checksum) = out.split_at_mut(out.len() - CHECKSUM_BYTES);
    let mut out = &mut *content;
    let set = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
    let job =
        set(flag::JOB, status.job().is_some()) | set(flag::TRIES, status.claim().is_some_and(has_tries));
    let prior_flag = |prior: Prior| match prior {
        Prior::Nothing => 0,
        Prior::Settled => flag::SETTLED,
        Prior::Unknown => flag::PRIOR_UNKNOWN,
    };
    out.put_u8(FORMAT);
    match status {
        Parts::Waiting(waiting) => {
            let late = set(flag::LATE, !waiting.late_effect_max.is_zero());
            out.put_slice(&[5, prior_flag(waiting.prior) | late | job]);
            put_claim(&mut out, &waiting.claim);
            put_late(&mut out, waiting.late_effect_max);
        }
        Parts::Held(held) => {
            let flags = set(flag::RETRY, held.on_unknown == OnUnknown::Retry)
                | set(flag::TICKET, held.owner == Owner::Ticket)
                | prior_flag(held.prior)
                | set(flag::LATE, !held.late_effect_max.is_zero())
                | job;
            out.put_slice(&[1, flags]);
            put_claim(&mut out, &held.claim);
            put_late(&mut out, held.late_effect_max);
        }
        Parts::Done(done) => {
            let outcome = match &done.end {
                End::Outcome(outcome) => Some(outcome),
                End::Closed(_) => None,
            };
            let flags =
                set(flag::FAILED, outcome.is_some_and(|outcome| outcome.verdict() == Verdict::Failed))
                    | set(
                        flag::OMITTED,
                        outcome.is_some_and(|outcome| matches!(outcome.snapshot(), Snapshot::Omitted(_))),
                    )
                    | set(flag::CLOSED, outcome.is_none())
                    | set(flag::TOMBSTONE, done.tombstone.is_some())
                    | job;
            out.put_slice(&[2, flags]);
            put_claim(&mut out, &done.claim);
            match done.tombstone {
                None => {}
                Some(Retention::Forever) => out.put_u64_le(u64::MAX),
                Some(Retention::For(duration)) => {
                    out.put_u64_le(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
                }
            }
            put_bytes(&mut out, end_bytes(&done.end));
        }
        Parts::Unknown(unknown) => {
            let late = set(flag::LATE, !unknown.late_effect_max.is_zero());
            let note = set(flag::NOTE, !unknown.note.is_empty());
            out.put_slice(&[3, prior_flag(unknown.prior) | late | note | job]);
            put_claim(&mut out, &unknown.claim);
            out.put_u8(match unknown.reason {
                UnknownReason::LeaseEnded => 0,
                UnknownReason::Reported => 1,
                UnknownReason::Panicked => 2,
                UnknownReason::Dropped => 3,
            });
            put_late(&mut out, unknown.late_effect_max);
            put_note(&mut out, &unknown.note);
        }
        Parts::Dead(dead) => {
            let note = set(flag::NOTE, !dead.note.is_empty());
            let retry = set(flag::RETRY, dead.on_unknown == OnUnknown::Retry);
            let late = set(flag::LATE, !dead.late_effect_max.is_zero());
            out.put_slice(&[6, retry | prior_flag(dead.prior) | late | note | job]);
            put_claim(&mut out, &dead.claim);
            put_late(&mut out, dead.late_effect_max);
            put_note(&mut out, &dead.note);
        }
        Parts::Gone(gone) => {
            out.put_slice(&[4, 0]);
            out.put_u64_le(gone.fence.0);
        }
    }
    if let Some(job) = status.job() {
        out.put_u16_le(job.started);
        out.put_u16_le(job.finished);
        put_text(&mut out, &job.note);
        put_bytes(&mut out, &job.input);
    }
    debug_assert!(out.is_empty(), "the length was computed for something else");
    checksum.copy_from_slice(&crc32fast::hash(content).to_le_bytes());
}

fn put_claim(out: &mut impl BufMut, claim: &Claim) {
    out.put_u8(claim.fingerprint.version());
    out.put_slice(claim.fingerprint.digest());
    out.put_u128_le(claim.attempt.0);
    out.put_u64_le(claim.fence.0);
    if has_tries(claim) {
        out.put_u16_le(claim.tries);
    }
}

/// Rounded up, so that what was allowed for is never less than was asked for.
fn put_late(out: &mut impl BufMut, late: Duration) {
    if !late.is_zero() {
        out.put_u32_le(u32::try_from(late.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX));
    }
}

fn put_note(out: &mut impl BufMut, note: &str) {
    if !note.is_empty() {
        put_text(out, note);
    }
}

fn put_text(out: &mut impl BufMut, text: &str) {
    out.put_u16_le(u16::try_from(text.len()).expect("notes are bounded far below 64 KiB"));
    out.put_slice(text.as_bytes());
}

fn put_bytes(out: &mut impl BufMut, bytes: &[u8]) {
    out.put_u32_le(u32::try_from(bytes.len()).expect("bodies and inputs are bounded far below 4 GiB"));
    out.put_slice(bytes);
}

fn end_bytes(end: &End) -> &[u8] {
    match end {
        End::Outcome(outcome) => match outcome.snapshot() {
            Snapshot::Kept(bytes) | Snapshot::Omitted(bytes) => bytes,
        },
        End::Closed(Closed::Cancelled) => &[0],
        End::Closed(Closed::Discarded) => &[1],
        End::Closed(Closed::Undone) => &[2],
    }
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
    Ok(Receipt { version: found.version, due: found.due, age: found.age, status })
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
        return Err(damaged(format!("it has format {format}, which was never released")));
    }
    let mut input = Input { bytes, at: HEAD_BYTES, end: checked_len, flags: bytes[2] };
    let status = match bytes[1] {
        1 => Status::Held(input.held(version)?),
        2 => Status::Done(input.done(version)?),
        3 => Status::Unknown(input.unknown(version)?),
        4 => Status::Gone(Gone { fence: Fence(input.u64()?) }),
        5 => Status::Waiting(Waiting {
            claim: input.claim(version)?,
            prior: input.prior()?,
            late_effect_max: input.late()?,
            job: input.job()?,
        }),
        6 => Status::Dead(Dead {
            claim: input.claim(version)?,
            prior: input.prior()?,
            on_unknown: input.on_unknown(),
            late_effect_max: input.late()?,
            note: input.note()?,
            job: input.job()?,
        }),
        other => return Err(damaged(format!("unknown state {other}"))),
    };
    if input.flags != 0 {
        return Err(damaged(format!("unknown flags {:#04x}", input.flags)));
    }
    if input.at != input.end {
        return Err(damaged(format!("{} bytes too many", input.end - input.at)));
    }
    Ok(status)
}

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Damaged, format!("a stored receipt cannot be read: {why}"))
}

/// A cursor over checked bytes. Bodies are slices of the input, not copies.
struct Input<'a> {
    bytes: &'a Bytes,
    at: usize,
    end: usize,
    /// Those that were not asked for yet: at the end there must be none.
    flags: u8,
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

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<Bytes> {
        let len = u32::from_le_bytes(self.array()?);
        let range = self.take(usize::try_from(len).map_err(|_| damaged("it is cut off"))?)?;
        Ok(self.bytes.slice(range))
    }

    fn flag(&mut self, flag: u8) -> bool {
        let is_set = self.flags & flag != 0;
        self.flags &= !flag;
        is_set
    }

    fn claim(&mut self, version: Version) -> Result<Claim> {
        let fingerprint = Fingerprint::new(self.u8()?, self.array()?);
        let attempt = Attempt(u128::from_le_bytes(self.array()?));
        let fence = match Fence(self.u64()?) {
            FENCE_IS_VERSION => Fence(version.0),
            fence => fence,
        };
        let usual = usual_tries(attempt);
        let tries = if self.flag(flag::TRIES) { self.u16()? } else { usual };
        Ok(Claim { fingerprint, attempt, fence, tries })
    }

    fn prior(&mut self) -> Result<Prior> {
        match (self.flag(flag::SETTLED), self.flag(flag::PRIOR_UNKNOWN)) {
            (false, false) => Ok(Prior::Nothing),
            (true, false) => Ok(Prior::Settled),
            (false, true) => Ok(Prior::Unknown),
            (true, true) => Err(damaged("what is known of earlier runs contradicts itself")),
        }
    }

    fn on_unknown(&mut self) -> OnUnknown {
        if self.flag(flag::RETRY) { OnUnknown::Retry } else { OnUnknown::Hold }
    }

    fn late(&mut self) -> Result<Duration> {
        if !self.flag(flag::LATE) {
            return Ok(Duration::ZERO);
        }
        Ok(Duration::from_millis(u32::from_le_bytes(self.array()?).into()))
    }

    fn job(&mut self) -> Result<Option<Arc<Job>>> {
        if !self.flag(flag::JOB) {
            return Ok(None);
        }
        let (started, finished) = (self.u16()?, self.u16()?);
        let job = Job { started, finished, note: self.text()?, input: self.bytes()? };
        Ok(Some(Arc::new(job)))
    }

    fn note(&mut self) -> Result<String> {
        if !self.flag(flag::NOTE) {
            return Ok(String::new());
        }
        let note = self.text()?;
        // An empty one has no flag: one receipt has one form.
        if note.is_empty() { Err(damaged("its note is empty")) } else { Ok(note) }
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u16()?;
        let text = self.take(len.into())?;
        let text = std::str::from_utf8(&self.bytes[text]).map_err(|_| damaged("its note is not text"))?;
        Ok(text.to_owned())
    }

    fn held(&mut self, version: Version) -> Result<Held> {
        Ok(Held {
            claim: self.claim(version)?,
            on_unknown: self.on_unknown(),
            owner: if self.flag(flag::TICKET) { Owner::Ticket } else { Owner::Run },
            prior: self.prior()?,
            late_effect_max: self.late()?,
            job: self.job()?,
        })
    }

    fn unknown(&mut self, version: Version) -> Result<Unknown> {
        Ok(Unknown {
            claim: self.claim(version)?,
            reason: match self.u8()? {
                0 => UnknownReason::LeaseEnded,
                1 => UnknownReason::Reported,
                2 => UnknownReason::Panicked,
                3 => UnknownReason::Dropped,
                other => return Err(damaged(format!("unknown reason {other}"))),
            },
            prior: self.prior()?,
            late_effect_max: self.late()?,
            note: self.note()?,
            job: self.job()?,
        })
    }

    fn done(&mut self, version: Version) -> Result<Done> {
        let claim = self.claim(version)?;
        let tombstone = if self.flag(flag::TOMBSTONE) {
            Some(match self.u64()? {
                u64::MAX => Retention::Forever,
                micros => Retention::For(Duration::from_micros(micros)),
            })
        } else {
            None
        };
        let body = self.bytes()?;
        let verdict = if self.flag(flag::FAILED) { Verdict::Failed } else { Verdict::Succeeded };
        let end = match (self.flag(flag::CLOSED), self.flag(flag::OMITTED), verdict) {
            (false, false, Verdict::Succeeded) => End::Outcome(Outcome::succeeded(body)),
            (false, false, Verdict::Failed) => End::Outcome(Outcome::failed(body)),
            (false, true, verdict) => End::Outcome(Outcome::omitted(verdict, body)),
            (true, false, Verdict::Succeeded) => End::Closed(match *body {
                [0] => Closed::Cancelled,
                [1] => Closed::Discarded,
                [2] => Closed::Undone,
                _ => return Err(damaged("why it was closed is unknown")),
            }),
            (true, ..) => return Err(damaged("it is closed and has an outcome")),
        };
        Ok(Done { claim, end, tombstone, job: self.job()? })
    }
}

#[cfg(test)]
#[path = "codec_test.rs"]
pub(crate) mod tests;
