use super::*;

#[test]
fn each_size_has_its_place() {
    let sizes = Sizes::default();
    for swaps in [1, 2, 3, 4, 5, 1024, 1025, 4096] {
        sizes.add(swaps);
    }
    let read = sizes.read();
    assert_eq!(read.by_size, [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!(read.swaps, 1 + 2 + 3 + 4 + 5 + 1024 + 1025 + 4096);
}
