//! Canonical form of `multipart/form-data`: its parts. The boundary does not count, because clients choose a new one
//! for every try.
//!
//! A part is its header fields and its bytes. Names of fields are compared without case and may change
//! places; their values count by their bytes. That covers name, file name and content type without
//! reading `Content-Disposition`, whose quoting every client does in its own way, and also what would
//! change the meaning of the bytes, such as `Content-Transfer-Encoding`.
//!
//! What two readers could take apart in two ways counts by its bytes: text before the first or behind
//! the last boundary, bare line ends or folded lines in a part's header, a boundary that is the
//! beginning of a longer line, a part that does not say that it is `form-data`.

use super::{ByBytes, write};

const LINE_END: &[u8] = b"\r\n";

pub(super) fn canonical(boundary: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<(), ByBytes> {
    let mut rest = body.strip_prefix(LINE_END).unwrap_or(body);
    rest = behind_dashes(rest).and_then(|rest| rest.strip_prefix(boundary)).ok_or(ByBytes)?;
    // Behind a boundary: either it is the last one, or its line ends here and a part follows.
    loop {
        if let Some(epilogue) = behind_dashes(rest) {
            let epilogue = trim_padding(epilogue);
            return if epilogue.is_empty() || epilogue == LINE_END { Ok(()) } else { Err(ByBytes) };
        }
        rest = trim_padding(rest).strip_prefix(LINE_END).ok_or(ByBytes)?;
        rest = fields(rest, out)?;
        // Some readers take this for an empty part, others for bytes.
        if behind_dashes(rest).is_some_and(|rest| rest.starts_with(boundary)) {
            return Err(ByBytes);
        }
        let bytes;
        (bytes, rest) = split_at_boundary(rest, boundary).ok_or(ByBytes)?;
        write::part(out, bytes);
    }
}

/// Writes the header fields of a part, and returns what is behind the empty line.
fn fields<'b>(mut rest: &'b [u8], out: &mut Vec<u8>) -> Result<&'b [u8], ByBytes> {
    let mut fields: Vec<(Vec<u8>, &[u8])> = Vec::new();
    let mut is_form_data = false;
    loop {
        let line;
        (line, rest) = split_line(rest).ok_or(ByBytes)?;
        if line.is_empty() {
            break;
        }
        // What begins with dashes may be meant as a boundary.
        if behind_dashes(line).is_some() || line.iter().any(|byte| b"\r\n\0".contains(byte)) {
            return Err(ByBytes);
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(ByBytes)?;
        let (name, value) = (line[..colon].to_ascii_lowercase(), trim_value(&line[colon + 1..]));
        // A folded line begins with a space, so it ends here too.
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return Err(ByBytes);
        }
        if name == b"content-disposition" {
            let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
            is_form_data = kind.trim_ascii_end().eq_ignore_ascii_case(b"form-data");
        }
        fields.push((name, value));
    }
    if !is_form_data {
        return Err(ByBytes);
    }
    // Stable: a repeated field keeps its order.
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    write::number(out, fields.len() as u64);
    for (name, value) in &fields {
        write::part(out, name);
        write::part(out, value);
    }
    Ok(rest)
}

/// The bytes up to the next line that begins with the boundary, and what is behind the boundary.
fn split_at_boundary<'b>(bytes: &'b [u8], boundary: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let mut from = 0;
    // A boundary has no line end in it, so no byte is compared twice.
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == b'\r') {
        let line_end = from + at;
        let behind = bytes[line_end..].strip_prefix(LINE_END).and_then(behind_dashes);
        if let Some(behind) = behind.and_then(|behind| behind.strip_prefix(boundary)) {
            return Some((&bytes[..line_end], behind));
        }
        from = line_end + 1;
    }
    None
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(LINE_END.len()).position(|window| window == LINE_END)?;
    Some((&bytes[..end], &bytes[end + LINE_END.len()..]))
}

fn behind_dashes(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(b"--")
}

fn trim_padding(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', behind @ ..] = bytes {
        bytes = behind;
    }
    bytes
}

fn trim_value(bytes: &[u8]) -> &[u8] {
    let mut value = trim_padding(bytes);
    while let [before @ .., b' ' | b'\t'] = value {
        value = before;
    }
    value
}

#[cfg(test)]
#[path = "multipart_test.rs"]
mod test;
