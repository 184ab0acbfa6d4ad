//! Canonical form of the query: its pairs, in their order.
//!
//! A retry sends the query it sent before, but proxies on the way respell it. So what RFC 3986 calls
//! equivalent is one: `%7e` and `~`, `%2f` and `%2F`, and a character that may not stand in a URL at all
//! (`{`, `é`) is one with its escape. Nothing beyond that: `+`, `%2B` and `%20` stay three things, for
//! services disagree on which of them is a space; `a` is not `a=`; and pairs keep their order.
//!
//! `/path?` and `/path` are one.

use super::rules::Pick;
use super::write::STOP;

/// Writes the pairs that count, in ASCII, and a stop behind them.
pub(super) fn canonical(query: &str, parameters: &Pick<String>, out: &mut Vec<u8>) {
    if !query.is_empty() {
        let mut first = true;
        for pair in query.as_bytes().split(|byte| *byte == b'&') {
            if !counts(pair, parameters) {
                continue;
            }
            if !first {
                out.push(b'&');
            }
            first = false;
            respell(pair, out);
        }
    }
    out.push(STOP);
}

fn counts(pair: &[u8], parameters: &Pick<String>) -> bool {
    let is_among = |names: &[String]| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        names.iter().any(|candidate| decoded(name).eq(candidate.bytes()))
    };
    match parameters {
        Pick::All => true,
        Pick::Only(names) => is_among(names),
        Pick::Except(names) => !is_among(names),
    }
}

fn respell(pair: &[u8], out: &mut Vec<u8>) {
    let mut rest = pair;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, escape(behind)) {
            (b'%', Some(escaped)) => {
                rest = &behind[2..];
                if is_unreserved(escaped) { out.push(escaped) } else { push_escape(escaped, out) }
            }
            // Not an escape, and it must not become one with what is decoded behind it: `%%32F`.
            (b'%', None) => out.extend_from_slice(b"%%"),
            _ if is_unreserved(byte) || is_reserved(byte) => out.push(byte),
            _ => push_escape(byte, out),
        }
    }
}

/// A name as services read it. Only for finding the parameters that rules name; what is digested keeps
/// more apart.
fn decoded(name: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        Some(match (byte, escape(behind)) {
            (b'%', Some(escaped)) => {
                rest = &behind[2..];
                escaped
            }
            (b'+', _) => b' ',
            _ => byte,
        })
    })
}

/// The byte that the two hexadecimal digits behind a percent sign stand for.
pub(super) fn escape(behind: &[u8]) -> Option<u8> {
    let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

fn push_escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn is_reserved(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
#[path = "query_test.rs"]
mod test;
