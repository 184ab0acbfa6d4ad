//! Version 1 of the fingerprint: which parts of a request are digested, in which order. Frozen; the golden values in
//! `fingerprint_test.rs` check it.
//!
//! ```text
//! domain 16 · method · override · host · path · query … 0xff · fields · fields · media type · content coding · kind 1 · body
//!
//! part     length, then bytes                  (method, host, path, media type, content coding)
//! override number of lines of X-HTTP-Method-Override, each line a part
//! fields   count, then for each: name part, number of lines, each line a part; first those that the route names, then
//!          of a caller that is not known those that may name one
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
//! * **Host: counts, in lower case, without the port that a scheme implies and without a trailing dot.** Virtual hosts
//!   may be tenants. An absent one counts as empty.
//! * **`X-HTTP-Method-Override`: counts.** Services that honour it do something else.

use http::HeaderName;

use super::media::{Format, Media};
use super::write;
use super::{ByBytes, Caller, Canonical, Head, Rules, form, json, multipart, query};
use crate::host;
use crate::request_fields::RequestFields;

pub(super) const VERSION: u8 = 1;

/// Keeps these digests apart from other hashes under the same secret.
const DOMAIN: &[u8; 16] = b"onceward-http-f1";

static METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");

const BY_BYTES: u8 = 0;
const BY_JSON: u8 = 1;
const BY_FORM: u8 = 2;
const BY_MULTIPART: u8 = 3;

pub(super) fn canonical<'b>(rules: &Rules, head: &Head<'_>, body: &'b [u8]) -> Canonical<'b> {
    let known = head.fields();
    let media = Media::of(head.headers, known);
    let mut out = Vec::with_capacity(128 + head.path.len() + head.query.map_or(0, str::len) + body.len() / 4);
    out.extend_from_slice(DOMAIN);
    write::part(&mut out, head.method.as_str().as_bytes());
    if known.has(RequestFields::METHOD_OVERRIDE) {
        lines(head, &METHOD_OVERRIDE, &mut out);
    } else {
        write::number(&mut out, 0);
    }
    let host = head.host.filter(|_| rules.host()).map_or(&b""[..], host::plain);
    write::part_in_lower_case(&mut out, host);
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
        write::part(out, name.as_str().as_bytes());
        lines(head, name, out);
    }
    // Most requests have none of these, and then nothing is allocated.
    let mut others = Vec::new();
    if head.caller == Caller::Anonymous {
        let may_name = |name: &&HeaderName| rules.may_name_somebody(name) && !rules.headers().contains(name);
        others.extend(head.headers.keys().filter(may_name));
        // Intermediaries reorder fields.
        others.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    }
    write::number(out, others.len() as u64);
    for name in others {
        write::part(out, name.as_str().as_bytes());
        lines(head, name, out);
    }
}

fn lines(head: &Head<'_>, name: &HeaderName, out: &mut Vec<u8>) {
    let lines = head.headers.get_all(name);
    write::number(out, lines.iter().count() as u64);
    for line in lines {
        write::part(out, line.as_bytes());
    }
}
