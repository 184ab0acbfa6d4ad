//! Tests of collecting the pieces of a body.

use proptest::prelude::*;

use super::*;

#[test]
fn one_piece_is_not_copied() {
    let piece = Bytes::from(vec![b'x'; 100]);
    let mut collected = BodyBuffer::default();
    collected.push(Bytes::new());
    collected.push(piece.clone());
    assert_eq!(collected.into_bytes().as_ptr(), piece.as_ptr());
}

proptest! {
    #[test]
    fn pieces_come_together_in_order(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
        let mut collected = BodyBuffer::default();
        for piece in &pieces {
            collected.push(piece.clone().into());
        }
        let whole = pieces.concat();
        prop_assert_eq!(collected.len(), whole.len());
        prop_assert_eq!(&collected.into_bytes()[..], &whole[..]);
    }
}
