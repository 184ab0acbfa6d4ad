//! Writes canonical bytes that can be parsed in only one way: each part is preceded by its length or ends with a byte
//! that it cannot contain.

/// Ends what is UTF-8, WTF-8 or ASCII, none of which has this byte.
pub(super) const STOP: u8 = 0xff;

/// Ends a list whose items each begin with a byte other than this.
pub(super) const END: u8 = 0xfe;

/// Writes `part` behind its length.
pub(super) fn part(out: &mut Vec<u8>, part: &[u8]) {
    number(out, part.len() as u64);
    out.extend_from_slice(part);
}

/// Writes `part` in ASCII lower case behind its length.
pub(super) fn part_in_lower_case(out: &mut Vec<u8>, part: &[u8]) {
    number(out, part.len() as u64);
    let start = out.len();
    out.extend_from_slice(part);
    out[start..].make_ascii_lowercase();
}

/// Writes seven bits a byte, the lowest first; the top bit says that more follow. Most lengths are one
/// byte this way, and what is digested is a block shorter than with lengths of a fixed size.
pub(super) fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Writes small numbers of either sign in one byte.
pub(super) fn signed(out: &mut Vec<u8>, signed: i64) {
    number(out, ((signed << 1) ^ (signed >> 63)).cast_unsigned());
}

#[cfg(test)]
#[path = "write_test.rs"]
mod test;
