//! A body as it comes together. One that came in one piece, as nearly all do, is not copied.

use bytes::{Bytes, BytesMut};

#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// The whole, as long as it is one piece.
    first: Bytes,
    /// The whole, from the second piece on.
    joined: BytesMut,
}

impl Collected {
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if !self.first.is_empty() {
            self.joined.reserve(self.first.len() + piece.len());
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&piece);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

#[cfg(test)]
#[path = "collect_test.rs"]
mod tests;
