//! Tests of the limit on connections by file descriptors.

use super::*;

#[test]
fn connections_are_limited_to_what_the_descriptors_are_enough_for() {
    assert_eq!(connections(10_000, None), 10_000);
    assert_eq!(connections(10_000, Some(65_536)), 10_000);
    assert_eq!(connections(10_000, Some(1_024)), 384);
    assert_eq!(connections(10_000, Some(200)), 50);
    assert_eq!(connections(10, Some(1_024)), 10);
    assert_eq!(connections(10, Some(0)), 1);
}
