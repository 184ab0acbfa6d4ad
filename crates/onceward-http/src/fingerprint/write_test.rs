//! What is put down in front of a part and in it.

use super::*;

#[test]
fn lower_case_changes_the_part_and_not_its_length() {
    // Among them the lengths that are themselves letters in upper case, and those of two bytes.
    for len in 0..300 {
        let (mut lowered, mut lower) = (b"before".to_vec(), b"before".to_vec());
        part_in_lower_case(&mut lowered, &vec![b'Q'; len]);
        part(&mut lower, &vec![b'q'; len]);
        assert_eq!(lowered, lower, "{len}");
    }
}
