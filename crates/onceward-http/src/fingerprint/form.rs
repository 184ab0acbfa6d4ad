//! Canonical form of `application/x-www-form-urlencoded`: its decoded pairs.
//!
//! Pairs of different names may change places; those of one name may not, for they are a list. `+` and
//! `%20` are one, so are `a` and `a=`, and nothing between two `&` is nothing: all as the URL standard
//! reads forms. A percent sign without two hexadecimal digits behind it is read in different ways by
//! different services, so such a body counts by its bytes.

use super::query::escape;
use super::{ByBytes, write};

/// One decoded pair, as places in the decoded bytes.
struct Pair {
    start: usize,
    name_end: usize,
    end: usize,
}

pub(super) fn canonical(body: &[u8], out: &mut Vec<u8>) -> Result<(), ByBytes> {
    let mut decoded = Vec::with_capacity(body.len());
    let mut pairs = Vec::new();
    for pair in body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let start = decoded.len();
        decode(&pair[..equals.unwrap_or(pair.len())], &mut decoded)?;
        let name_end = decoded.len();
        decode(equals.map_or(&[], |equals| &pair[equals + 1..]), &mut decoded)?;
        pairs.push(Pair { start, name_end, end: decoded.len() });
    }
    // Stable: pairs of one name stay in their order.
    pairs.sort_by(|a, b| decoded[a.start..a.name_end].cmp(&decoded[b.start..b.name_end]));
    for pair in &pairs {
        write::part(out, &decoded[pair.start..pair.name_end]);
        write::part(out, &decoded[pair.name_end..pair.end]);
    }
    Ok(())
}

fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), ByBytes> {
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                out.push(escape(behind).ok_or(ByBytes)?);
                rest = &behind[2..];
            }
            _ => out.push(byte),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "form_test.rs"]
mod test;
