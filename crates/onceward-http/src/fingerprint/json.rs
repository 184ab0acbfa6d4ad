//! JSON (RFC 8259), by value: one strict pass over the body, without recursion, into canonical bytes.
//!
//! ```text
//! null 0 · false 1 · true 2
//! number   number.rs
//! string   6 · text.rs
//! array    7 · values in their order · 0xfe
//! object   8 · for each member, sorted by name: text.rs · value · then 0xfe
//! 9        a leaf that pointers lead through and that does not count itself
//! 10       the document, where none of it counts
//! ```
//!
//! Tags differ from 0xfe, names and strings end with 0xff, and text contains neither: canonical bytes
//! can be read back in only one way, so two values never share them.
//!
//! These count by their bytes instead: what is not strictly JSON (a byte order mark, anything behind
//! the value, `NaN`, `01`, a raw control character, bytes that are not UTF-8), an object that repeats a
//! member's name (services keep the first, the last or both), nesting beyond [`DEPTH_MAX`], an exponent
//! beyond [`EXPONENT_MAX`](number::EXPONENT_MAX), a document beyond [`DOCUMENT_BYTES_MAX`]. A repeated
//! name is allowed if the rules exclude it, because then none of its values counts.

mod draft;
mod number;
mod text;

use super::ByBytes;
use super::pointer::{Inclusion, Selection};
use super::write::END;
use draft::{Draft, Mark, Opened};

/// Most objects and arrays inside each other. Beyond it no service reads a document anyway.
pub(super) const DEPTH_MAX: usize = 128;

/// Longest document that is read by value. Canonical bytes are at most about twice as many, so that
/// places within them fit in 32 bits.
pub(super) const DOCUMENT_BYTES_MAX: usize = 1 << 30;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const TEXT: u8 = 6;
const ARRAY: u8 = 7;
const OBJECT: u8 = 8;
const LEAF_ON_THE_WAY: u8 = 9;
const NOTHING: u8 = 10;

/// Writes what counts of a document. Where it is not read by value, `out` is left as it was.
pub(super) fn canonical(body: &[u8], selection: &Selection, out: &mut Vec<u8>) -> Result<(), ByBytes> {
    if body.len() > DOCUMENT_BYTES_MAX || std::str::from_utf8(body).is_err() {
        return Err(ByBytes);
    }
    let draft = Draft::new(body.len());
    let mut reader = Reader { body, at: 0, selection, draft, innermost: None, around: Vec::new() };
    reader.document()?;
    if let Inclusion::Drop = selection.of_document() {
        out.push(NOTHING);
    } else {
        reader.draft.arrange(out);
    }
    Ok(())
}

struct Reader<'b, 'r> {
    body: &'b [u8],
    at: usize,
    selection: &'r Selection,
    draft: Draft,
    /// The object or array around this place, and those around that one, outermost first: a document that
    /// has only one of them, as most requests do, needs no list.
    innermost: Option<OpenContainer<'r>>,
    around: Vec<OpenContainer<'r>>,
}

/// An object or array that has begun, and the item in it that is being read.
struct OpenContainer<'r> {
    inclusion: Inclusion<'r>,
    container: Container,
    item: Mark,
    item_inclusion: Inclusion<'r>,
}

#[derive(Clone, Copy)]
enum Container {
    Object { opened: Opened, name_end: usize },
    Array { index: usize },
}

impl<'r> Reader<'_, 'r> {
    fn document(&mut self) -> Result<(), ByBytes> {
        self.space();
        let mut inclusion = self.selection.of_document();
        loop {
            let inner = match self.peek()? {
                b'{' => self.begin_object(inclusion)?,
                b'[' => self.begin_array(inclusion)?,
                _ => {
                    self.leaf(inclusion)?;
                    None
                }
            };
            inclusion = match inner {
                Some(first) => first,
                None => match self.behind_value()? {
                    Some(next) => next,
                    None => return Ok(()),
                },
            };
        }
    }

    /// Returns the inclusion of the first member; the position is then before its value. `None` if there is no
    /// member; the position is then after the object.
    fn begin_object(&mut self, inclusion: Inclusion<'r>) -> Result<Option<Inclusion<'r>>, ByBytes> {
        self.draft.bytes.push(OBJECT);
        let container = Container::Object { opened: self.draft.open_object(), name_end: 0 };
        self.begin(inclusion, container, b'}')
    }

    fn begin_array(&mut self, inclusion: Inclusion<'r>) -> Result<Option<Inclusion<'r>>, ByBytes> {
        self.draft.bytes.push(ARRAY);
        self.begin(inclusion, Container::Array { index: 0 }, b']')
    }

    fn begin(
        &mut self,
        inclusion: Inclusion<'r>,
        container: Container,
        close: u8,
    ) -> Result<Option<Inclusion<'r>>, ByBytes> {
        let begun =
            OpenContainer { inclusion, container, item: self.draft.mark(), item_inclusion: inclusion };
        self.around.extend(self.innermost.replace(begun));
        if self.around.len() == DEPTH_MAX {
            return Err(ByBytes);
        }
        self.at += 1;
        self.space();
        if self.peek()? == close {
            self.at += 1;
            self.close()?;
            return Ok(None);
        }
        self.begin_item().map(Some)
    }

    /// Stands at an item and moves to its value.
    fn begin_item(&mut self) -> Result<Inclusion<'r>, ByBytes> {
        let item = self.draft.mark();
        let name_start = self.draft.bytes.len();
        let open = self.innermost.as_mut().expect("an item is container something");
        open.item = item;
        open.item_inclusion = match &mut open.container {
            Container::Array { index } => self.selection.of_element(open.inclusion, *index),
            Container::Object { name_end, .. } => {
                if self.body.get(self.at) != Some(&b'"') {
                    return Err(ByBytes);
                }
                self.at = text::read(self.body, self.at + 1, &mut self.draft.bytes)?;
                // Without the stop.
                *name_end = self.draft.bytes.len() - 1;
                self.selection.of_member(open.inclusion, &self.draft.bytes[name_start..*name_end])
            }
        };
        let (inclusion, container) = (open.item_inclusion, open.container);
        if let Container::Object { .. } = container {
            self.space();
            self.expect(b':')?;
            self.space();
        }
        Ok(inclusion)
    }

    /// Stands behind a value: ends what it ends, and moves to the next value, of which it returns the
    /// inclusion; none at the end of the document.
    fn behind_value(&mut self) -> Result<Option<Inclusion<'r>>, ByBytes> {
        loop {
            self.space();
            let Some(open) = &mut self.innermost else {
                return if self.at == self.body.len() { Ok(None) } else { Err(ByBytes) };
            };
            let dropped = matches!(open.item_inclusion, Inclusion::Drop);
            if dropped {
                self.draft.roll_back(open.item);
            }
            let close = match &mut open.container {
                Container::Array { index } => {
                    *index += 1;
                    b']'
                }
                Container::Object { name_end, .. } => {
                    if !dropped {
                        self.draft.member(open.item, *name_end);
                    }
                    b'}'
                }
            };
            let byte = self.peek()?;
            self.at += 1;
            if byte == b',' {
                self.space();
                return self.begin_item().map(Some);
            } else if byte != close {
                return Err(ByBytes);
            }
            self.close()?;
        }
    }

    fn close(&mut self) -> Result<(), ByBytes> {
        let closed = std::mem::replace(&mut self.innermost, self.around.pop());
        if let Some(OpenContainer { container: Container::Object { opened, .. }, .. }) = closed {
            self.draft.close_object(opened)?;
        }
        self.draft.bytes.push(END);
        Ok(())
    }

    /// Reads a value that is neither object nor array.
    fn leaf(&mut self, inclusion: Inclusion<'r>) -> Result<(), ByBytes> {
        let start = self.draft.mark();
        let out = &mut self.draft.bytes;
        self.at = match self.body[self.at] {
            b'"' => {
                out.push(TEXT);
                text::read(self.body, self.at + 1, out)?
            }
            b'n' => word(self.body, self.at, b"null", NULL, out)?,
            b'f' => word(self.body, self.at, b"false", FALSE, out)?,
            b't' => word(self.body, self.at, b"true", TRUE, out)?,
            _ => number::read(self.body, self.at, out)?,
        };
        if let (Inclusion::Within(_), false) = (inclusion, self.selection.keeps_leaf_on_the_way()) {
            self.draft.roll_back(start);
            self.draft.bytes.push(LEAF_ON_THE_WAY);
        }
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.body.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, ByBytes> {
        self.body.get(self.at).copied().ok_or(ByBytes)
    }

    fn expect(&mut self, byte: u8) -> Result<(), ByBytes> {
        if self.peek()? != byte {
            return Err(ByBytes);
        }
        self.at += 1;
        Ok(())
    }
}

fn word(body: &[u8], at: usize, word: &[u8], tag: u8, out: &mut Vec<u8>) -> Result<usize, ByBytes> {
    if !body[at..].starts_with(word) {
        return Err(ByBytes);
    }
    out.push(tag);
    Ok(at + word.len())
}

#[cfg(test)]
#[path = "json_test.rs"]
mod test;
