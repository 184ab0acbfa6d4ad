//! Version 1 of the fingerprint: which parts of a request are digested, in which order. Frozen; the golden values in
//! `fingerprint_test.rs` check it.
//!
//! ```text
//! domain 16 · method · path · query … 0xff · fields · media type · content coding · kind 1 · body
//!
//! part     length, then bytes                  (method, path, media type, content coding)
//! fields   count, then for each: name part, number of lines, each line a part
//! kind     0 by its bytes · 1 JSON by value · 2 form by pairs · 3 multipart by parts
//! body     the rest, so it needs no length; each kind can be read back in only one way
//! ```
//!
//! * **Path: by its bytes.** Servers differ on what `%2F`, `//` and `;` mean, and no client respells a
//!   path between two tries.
//! * **Media type: counts, without its parameters, in lower case.** The same bytes as text and as JSON
//!   are two requests; `; charset=utf-8` is added and left out by libraries on their own. `charset` on
//!   its own never makes two requests different, then: bodies of two charsets differ in their bytes.
//! * **Content coding: counts, and a coded body counts by its bytes.** Nothing is unpacked here: a
//!   kilobyte may unpack to a gigabyte, and a retry repeats the bytes that it sent.
//! * **Host: does not count.** It is the scope's or the operation's to tell hosts apart.

use super::media::{Format, Media};
use super::write;
use super::{ByBytes, Canonical, Head, Rules, form, json, multipart, query};

pub(super) const VERSION: u8 = 1;

/// Keeps these digests apart from other hashes under the same secret.
const DOMAIN: &[u8; 16] = b"onceward-http-f1";

const BY_BYTES: u8 = 0;
const BY_JSON: u8 = 1;
const BY_FORM: u8 = 2;
const BY_MULTIPART: u8 = 3;

pub(super) fn canonical<'b>(rules: &Rules, head: &Head<'_>, body: &'b [u8]) -> Canonical<'b> {
    let media = Media::of(head.headers);
    let mut out = Vec::with_capacity(128 + head.path.len() + head.query.map_or(0, str::len) + body.len() / 4);
    out.extend_from_slice(DOMAIN);
    write::part(&mut out, head.method.as_str().as_bytes());
    write::part(&mut out, head.path.as_bytes());
    query::canonical(head.query.unwrap_or_default(), rules.parameters(), &mut out);
    fields(rules, head, &mut out);
    write::part_in_lower_case(&mut out, &media.essence);
    write::part_in_lower_case(&mut out, &media.coding);

    let before = out.len();
    let by_value = match media.format() {
        Format::Json => {
            out.push(BY_JSON);
            json::canonical(body, rules.selection(), &mut out)
        }
        Format::Form => {
            out.push(BY_FORM);
            form::canonical(body, &mut out)
        }
        Format::Multipart(boundary) => {
            out.push(BY_MULTIPART);
            multipart::canonical(boundary, body, &mut out)
        }
        Format::Other => Err(ByBytes),
    };
    match by_value {
        Ok(()) => Canonical { written: out, bytes: &[] },
        Err(ByBytes) => {
            out.truncate(before);
            out.push(BY_BYTES);
            Canonical { written: out, bytes: body }
        }
    }
}

fn fields(rules: &Rules, head: &Head<'_>, out: &mut Vec<u8>) {
    write::number(out, rules.headers().len() as u64);
    for name in rules.headers() {
        let lines = head.headers.get_all(name);
        write::part(out, name.as_str().as_bytes());
        write::number(out, lines.iter().count() as u64);
        for line in lines {
            write::part(out, line.as_bytes());
        }
    }
}
