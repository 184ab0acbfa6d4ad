//! Collects the pieces of a body. A body of one piece, as most are, is not copied.

use bytes::{Bytes, BytesMut};

#[derive(Debug, Default)]
pub(crate) enum BodyBuffer {
    #[default]
    Empty,
    One(Bytes),
    /// From the second piece on.
    Collected(BytesMut),
}

impl BodyBuffer {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(piece) => piece.len(),
            Self::Collected(joined) => joined.len(),
        }
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        match self {
            Self::Collected(joined) => joined.extend_from_slice(&piece),
            Self::One(first) if !first.is_empty() => {
                let mut joined = BytesMut::with_capacity(first.len() + piece.len());
                joined.extend_from_slice(first);
                joined.extend_from_slice(&piece);
                *self = Self::Collected(joined);
            }
            Self::Empty | Self::One(_) => *self = Self::One(piece),
        }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::One(piece) => piece,
            Self::Collected(joined) => joined.freeze(),
        }
    }
}

#[cfg(test)]
#[path = "body_buffer_test.rs"]
mod tests;
