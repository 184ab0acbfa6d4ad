use super::*;

/// A mark that was read as another number would hide every record of its prefix.
#[test]
fn marks_never_change() {
    assert_eq!(buckets("onceward receipts 2, buckets: 1"), Some(1));
    assert_eq!(buckets("onceward receipts 2, buckets: 256"), Some(256));
    for other in
        ["onceward receipts 1", "onceward receipts 2, buckets: 0", "onceward receipts 2, buckets: 257"]
    {
        assert_eq!(buckets(other), None, "{other}");
    }
}
