use super::*;

fn check(scope: &str, operation: &str, key: &str, expect: [i64; 3]) {
    let digest = Digest::of(&Id::new(scope, operation, key).unwrap());
    assert_eq!([digest.high, digest.middle, digest.low], expect, "{scope} {operation} {key}");
    assert!(range_of_scope(scope).contains(&digest.high), "{scope} {operation} {key}");
}

/// From SHA-256 as others compute it; never to be edited.
#[test]
fn numbers_are_for_ever() {
    check(
        "tenant",
        "POST /charges",
        "1",
        [-1_595_814_872_876_476_128, -7_532_726_174_291_922_673, 5_648_471_827_568_429_816],
    );
    check(
        "anonymous",
        "PATCH /orders/{id}",
        "8e03978e-40d5-43e8-bc93-6894a57f9324",
        [3_393_526_428_017_900_405, -5_471_866_690_055_024_712, 3_333_309_222_453_284_832],
    );
    check(
        &"t".repeat(255),
        &"o".repeat(512),
        &"k".repeat(255),
        [-3_250_597_275_694_464_260, 3_412_845_213_791_947_822, -6_138_157_227_104_146_109],
    );
}

#[test]
fn parts_do_not_run_into_each_other() {
    let of = |scope, operation, key| Digest::of(&Id::new(scope, operation, key).unwrap());
    assert_ne!(of("ab", "c", "d"), of("a", "bc", "d"));
    assert_ne!(of("a", "bc", "d"), of("a", "b", "cd"));
}
