//! Collects the pieces of a body. A body of one piece, as most are, is not copied.

use bytes::{Bytes, BytesMut};

#[derive(Debug, Default)]
pub(crate) struct BodyBuffer {
    /// The whole body while it is one piece.
    first: Bytes,
    /// The whole body from the second piece on.
    joined: BytesMut,
}

impl BodyBuffer {
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
#[path = "body_buffer_test.rs"]
mod tests;
