//! Which parts a process takes and releases, one line for each case.

use super::*;

/// Owners by part: `-` is free, a capital letter is lapsed.
fn rows(owners: &str) -> Vec<PartRow> {
    let row = |(part, owner): (usize, char)| PartRow {
        part: u32::try_from(part).unwrap(),
        owner: (owner != '-').then(|| owner.to_ascii_lowercase().to_string()),
        is_lapsed: owner.is_ascii_uppercase(),
    };
    owners.chars().enumerate().map(row).collect()
}

#[test]
fn shares_are_even_and_only_free_parts_are_taken() {
    let check = |members: usize, owners: &str, take: &[u32], release: &[u32]| {
        let expected = Plan { take: take.to_vec(), release: release.to_vec() };
        assert_eq!(plan("a", members, &rows(owners)), expected, "{members} members, {owners}");
    };
    check(1, "----", &[0, 1, 2, 3], &[]);
    check(1, "aaaa", &[], &[]);
    check(2, "aaaa", &[], &[2, 3]);
    check(2, "bb--", &[2, 3], &[]);
    check(2, "bbb-", &[3], &[]);
    check(2, "BBbb", &[0, 1], &[]);
    check(2, "aaBB", &[], &[]);
    check(1, "aaBB", &[2, 3], &[]);
    check(3, "aa--", &[], &[]);
    check(3, "----", &[0, 1], &[]);
    check(1, "AAaa", &[0, 1], &[]);
    check(9, "aaa-", &[], &[1, 2]);
}
