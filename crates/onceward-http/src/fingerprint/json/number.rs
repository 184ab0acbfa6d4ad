//! Canonical form of JSON numbers, as exact decimals, never through a float: 2, 2.0 and 20e-1 are one, 9007199254740993 and
//! 9007199254740992 are not.
//!
//! ```text
//! zero   3, whatever its sign, its point and its exponent
//! other  4 positive, 5 negative · exponent · digits as text · 0xff
//! ```
//!
//! The digits neither begin nor end with a zero and are a whole number to be multiplied by ten to the
//! exponent. Nothing is ever written out, so `1e999999999` costs what `1e9` costs.

use crate::fingerprint::ByBytes;
use crate::fingerprint::write::{self, STOP};

/// Greatest exponent, of either sign, of the canonical form. A document with a number beyond
/// it counts by its bytes. The limit is on the value, not on its spelling.
pub(in crate::fingerprint) const EXPONENT_MAX: i64 = 1_000_000_000_000_000_000;

const ZERO: u8 = 3;
const POSITIVE: u8 = 4;
const NEGATIVE: u8 = 5;

/// Reads the number at `start`; returns the position after it.
pub(super) fn read(body: &[u8], start: usize, out: &mut Vec<u8>) -> Result<usize, ByBytes> {
    let is_negative = body.get(start) == Some(&b'-');
    let whole_start = start + usize::from(is_negative);
    let mut at = behind_digits(body, whole_start)?;
    let mut whole = &body[whole_start..at];
    if whole.len() > 1 && whole[0] == b'0' {
        return Err(ByBytes);
    }
    let mut fraction: &[u8] = &[];
    if body.get(at) == Some(&b'.') {
        let end = behind_digits(body, at + 1)?;
        fraction = &body[at + 1..end];
        at = end;
    }
    let mut exponent = 0;
    if let Some(b'e' | b'E') = body.get(at) {
        let sign = body.get(at + 1).copied();
        let digits = at + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        at = behind_digits(body, digits)?;
        exponent = saturated(&body[digits..at]) * if sign == Some(b'-') { -1 } else { 1 };
    }

    fraction = without_zeros_behind(fraction);
    let mut moved = -length(fraction);
    if fraction.is_empty() {
        let written = length(whole);
        whole = without_zeros_behind(whole);
        moved = written - length(whole);
    }
    if whole == b"0" {
        whole = &[];
    }
    if whole.is_empty() {
        fraction = without_zeros_before(fraction);
    }
    if whole.is_empty() && fraction.is_empty() {
        out.push(ZERO);
        return Ok(at);
    }
    // Saturated numbers stay far beyond the bound: no document is long enough to move them back.
    exponent = exponent.saturating_add(moved);
    if exponent.unsigned_abs() > EXPONENT_MAX.unsigned_abs() {
        return Err(ByBytes);
    }
    out.push(if is_negative { NEGATIVE } else { POSITIVE });
    write::signed(out, exponent);
    out.extend_from_slice(whole);
    out.extend_from_slice(fraction);
    out.push(STOP);
    Ok(at)
}

/// The position after one or more digits.
fn behind_digits(body: &[u8], start: usize) -> Result<usize, ByBytes> {
    let mut at = start;
    while body.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at == start { Err(ByBytes) } else { Ok(at) }
}

fn saturated(digits: &[u8]) -> i64 {
    digits.iter().fold(0_i64, |all, digit| all.saturating_mul(10).saturating_add(i64::from(digit - b'0')))
}

fn without_zeros_behind(mut digits: &[u8]) -> &[u8] {
    while let [before @ .., b'0'] = digits {
        digits = before;
    }
    digits
}

fn without_zeros_before(mut digits: &[u8]) -> &[u8] {
    while let [b'0', behind @ ..] = digits {
        digits = behind;
    }
    digits
}

/// A document is at most `DOCUMENT_BYTES_MAX` long, so this always fits.
fn length(digits: &[u8]) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}
