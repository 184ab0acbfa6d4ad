//! The canonical bytes of a JSON document while it is being read, and the positions of the objects whose members must
//! be sorted. They are sorted once, at the end, from the outside in, so that no byte is moved more than once at any
//! depth.

use std::cell::Cell;
use std::ops::{Deref, DerefMut, Range};

use crate::fingerprint::ByBytes;

/// A document in the order of the body. Its tables are lent by the thread and given back, because nearly
/// every request has a small document that needs the same ones.
pub(super) struct Draft(Tables);

thread_local! {
    static SPARE: Cell<Option<Tables>> = const { Cell::new(None) };
}

/// Tables for larger documents than this are not kept at hand.
const SPARE_BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Tables {
    pub(super) bytes: Vec<u8>,
    /// By where they begin. Those that need nothing done, inside as well, are taken off again when they
    /// end, so that a list of a million small sorted objects costs nothing here.
    objects: Vec<Object>,
    /// Members of the objects that are still open, those of the innermost last.
    pending: Vec<Member>,
    /// Members of the objects that are not in order, sorted, each object's together.
    members: Vec<Member>,
}

/// A position that can be returned to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    bytes: u32,
    objects: u32,
}

/// An object that has begun.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    object: u32,
    pending: u32,
}

struct Object {
    start: u32,
    end: u32,
    /// Its members, sorted; empty if they are in order already.
    members: Range<u32>,
    /// The first object after it.
    next: u32,
}

/// A name and its value.
#[derive(Clone, Copy)]
struct Member {
    start: u32,
    name_end: u32,
    end: u32,
    /// The first object that begins in it or after it.
    objects: u32,
}

impl Draft {
    pub(super) fn new(body_bytes: usize) -> Self {
        let mut tables = SPARE.take().unwrap_or_default();
        tables.bytes.reserve(body_bytes + 32);
        Self(tables)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let mut tables = std::mem::take(&mut self.0);
        if tables.bytes.capacity() > SPARE_BYTES_MAX {
            return;
        }
        tables.bytes.clear();
        tables.objects.clear();
        tables.pending.clear();
        tables.members.clear();
        // A thread that is ending keeps nothing.
        let _ = SPARE.try_with(|spare| spare.set(Some(tables)));
    }
}

impl Deref for Draft {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.0
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.0
    }
}

impl Tables {
    pub(super) fn mark(&self) -> Mark {
        Mark { bytes: place(self.bytes.len()), objects: place(self.objects.len()) }
    }

    /// Takes back the value that was written since the mark. Its objects have lost their members one by
    /// one before, so none of them is left to be arranged.
    pub(super) fn roll_back(&mut self, mark: Mark) {
        debug_assert_eq!(self.objects.len(), mark.objects as usize);
        self.bytes.truncate(mark.bytes as usize);
    }

    /// The members follow.
    pub(super) fn open_object(&mut self) -> Opened {
        let start = place(self.bytes.len());
        let opened = Opened { object: place(self.objects.len()), pending: place(self.pending.len()) };
        self.objects.push(Object { start, end: start, members: 0..0, next: 0 });
        opened
    }

    /// A member of the innermost object is complete. Its name, which ends at `name_end`, was written at
    /// the mark.
    pub(super) fn member(&mut self, mark: Mark, name_end: usize) {
        let end = place(self.bytes.len());
        let Mark { bytes: start, objects } = mark;
        self.pending.push(Member { start, name_end: place(name_end), end, objects });
    }

    /// The members are complete. Fails if two of them have one name.
    pub(super) fn close_object(&mut self, opened: Opened) -> Result<(), ByBytes> {
        let bytes = &self.bytes;
        let members = &mut self.pending[opened.pending as usize..];
        let in_order = members.is_sorted_by(|a, b| a.name(bytes) < b.name(bytes));
        if !in_order {
            members.sort_unstable_by(|a, b| a.name(bytes).cmp(b.name(bytes)));
            if members.windows(2).any(|pair| pair[0].name(bytes) == pair[1].name(bytes)) {
                return Err(ByBytes);
            }
        }
        let object = opened.object as usize;
        if in_order && self.objects.len() == object + 1 {
            self.objects.truncate(object);
        } else {
            let next = place(self.objects.len());
            let object = &mut self.objects[object];
            object.end = place(bytes.len());
            object.next = next;
            if !in_order {
                let from = place(self.members.len());
                self.members.extend_from_slice(members);
                object.members = from..place(self.members.len());
            }
        }
        self.pending.truncate(opened.pending as usize);
        Ok(())
    }

    /// Writes the whole document with every object's members sorted.
    pub(super) fn arrange(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes.len());
        self.arrange_within(0..self.bytes.len(), 0, out);
    }

    /// Calls itself once per object that is not in order, inside each other: at most `DEPTH_MAX` deep.
    fn arrange_within(&self, range: Range<usize>, first: u32, out: &mut Vec<u8>) {
        let mut at = range.start;
        let mut next = first as usize;
        while let Some(object) = self.objects.get(next).filter(|object| (object.start as usize) < range.end) {
            if object.members.is_empty() {
                // In order itself; those inside it come next.
                next += 1;
                continue;
            }
            out.extend_from_slice(&self.bytes[at..object.start as usize]);
            for member in &self.members[object.members.start as usize..object.members.end as usize] {
                self.arrange_within(member.start as usize..member.end as usize, member.objects, out);
            }
            at = object.end as usize;
            next = object.next as usize;
        }
        out.extend_from_slice(&self.bytes[at..range.end]);
    }
}

impl Member {
    fn name<'d>(&self, bytes: &'d [u8]) -> &'d [u8] {
        &bytes[self.start as usize..self.name_end as usize]
    }
}

fn place(at: usize) -> u32 {
    u32::try_from(at).expect("a document within DOCUMENT_BYTES_MAX")
}
