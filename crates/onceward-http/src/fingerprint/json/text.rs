//! Canonical form of JSON strings and member names: unescaped, with an end mark.
//!
//! Written as WTF-8: that is UTF-8, plus a form of its own for half of a surrogate pair. So an escaped
//! pair is one with the character it stands for, and a lone half, which JSON allows, is a value of its
//! own: it is neither another half nor the replacement character that some services make of it.

use crate::fingerprint::ByBytes;
use crate::fingerprint::write::STOP;

/// Longer texts are scanned first and then copied in one piece.
const WORDS_COPIED_WHOLE: usize = 2;

/// Reads the string whose opening quote is before `start`; returns the position after its closing quote.
/// The body is known to be UTF-8.
pub(super) fn read(body: &[u8], start: usize, out: &mut Vec<u8>) -> Result<usize, ByBytes> {
    let mut at = start;
    // Most names and many values end within these: copies of a known length are made in place, without a call.
    for _ in 0..WORDS_COPIED_WHOLE {
        let Some(word) = body[at..].first_chunk::<8>() else { break };
        let marks = special(u64::from_le_bytes(*word));
        if marks == 0 {
            out.extend_from_slice(word);
            at += word.len();
            continue;
        }
        let plain = marks.trailing_zeros() as usize / 8;
        if word[plain] == b'"' {
            let stop = out.len() + plain;
            out.extend_from_slice(word);
            out[stop] = STOP;
            out.truncate(stop + 1);
            return Ok(at + plain + 1);
        }
        break;
    }
    loop {
        let plain = plain_bytes(&body[at..]).ok_or(ByBytes)?;
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

/// How many bytes stand for themselves before one that does not: a quote, a backslash, a control character.
/// None if there is no such byte. Most of a document is text, so it is scanned eight bytes at a time.
fn plain_bytes(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let marks = special(u64::from_le_bytes(*word));
        if marks != 0 {
            return Some(at * 8 + marks.trailing_zeros() as usize / 8);
        }
    }
    let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..0x20))?;
    Some(words.len() * 8 + plain)
}

/// Marks the bytes that do not stand for themselves, with the top bit of each. A subtraction borrows only
/// from bytes above one that is marked, so the lowest mark is always right, and it is the only one asked for.
fn special(word: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    let below = |word: u64, bound: u8| word.wrapping_sub(EACH * u64::from(bound)) & !word;
    let equal = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (below(word, 0x20) | equal(b'"') | equal(b'\\')) & (EACH << 7)
}

/// Reads the escape whose backslash is before `at`; returns the position after it.
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

#[cfg(test)]
#[path = "text_test.rs"]
mod test;
