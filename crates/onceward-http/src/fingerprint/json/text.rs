//! Strings and member names, unescaped, with a stop behind them.
//!
//! Written as WTF-8: that is UTF-8, plus a form of its own for half of a surrogate pair. So an escaped
//! pair is one with the character it stands for, and a lone half, which JSON allows, is a value of its
//! own: it is neither another half nor the replacement character that some services make of it.

use crate::fingerprint::ByBytes;
use crate::fingerprint::write::STOP;

/// Reads the string whose opening quote is before `start`; returns the place behind its closing quote.
/// The body is known to be UTF-8.
pub(super) fn read(body: &[u8], start: usize, out: &mut Vec<u8>) -> Result<usize, ByBytes> {
    let mut at = start;
    loop {
        let plain =
            body[at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20)).ok_or(ByBytes)?;
        out.extend_from_slice(&body[at..at + plain]);
        at += plain;
        match body[at] {
            b'"' => {
                out.push(STOP);
                return Ok(at + 1);
            }
            b'\\' => at = escape(body, at + 1, out)?,
            _ => return Err(ByBytes),
        }
    }
}

/// Reads the escape whose backslash is before `at`; returns the place behind it.
fn escape(body: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, ByBytes> {
    out.push(match body.get(at) {
        Some(same @ (b'"' | b'\\' | b'/')) => *same,
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'u') => return unicode(body, at + 1, out),
        _ => return Err(ByBytes),
    });
    Ok(at + 1)
}

/// Reads four hexadecimal digits at `at`, and with a first half also the second that may follow.
fn unicode(body: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, ByBytes> {
    let unit = hexadecimal(body, at).ok_or(ByBytes)?;
    let behind = at + 4;
    if (0xd800..0xdc00).contains(&unit) && body[behind..].starts_with(b"\\u") {
        let second = hexadecimal(body, behind + 2).ok_or(ByBytes)?;
        if (0xdc00..0xe000).contains(&second) {
            push_wtf8(0x1_0000 + ((unit - 0xd800) << 10) + (second - 0xdc00), out);
            return Ok(behind + 6);
        }
    }
    push_wtf8(unit, out);
    Ok(behind)
}

fn hexadecimal(body: &[u8], at: usize) -> Option<u32> {
    let digits = body.get(at..at + 4)?;
    digits.iter().try_fold(0, |all, digit| Some(all << 4 | char::from(*digit).to_digit(16)?))
}

fn push_wtf8(point: u32, out: &mut Vec<u8>) {
    match char::from_u32(point) {
        Some(whole) => out.extend_from_slice(whole.encode_utf8(&mut [0; 4]).as_bytes()),
        // Half a pair: three bytes, as UTF-8 would write it if it were allowed to.
        None => {
            let [.., high, low] = point.to_be_bytes();
            out.extend([0xe0 | high >> 4, 0x80 | (high & 0xf) << 2 | low >> 6, 0x80 | low & 0x3f]);
        }
    }
}
