//! Tests of the numbers of ids, against fixed values.

use super::*;

fn check(id: &Id, expect: [i64; 3]) {
    let digest = Digest::of(id);
    assert_eq!([digest.high, digest.middle, digest.low], expect, "{id:?}");
    assert!(range_of(Some(id.scope()), None).contains(&digest.high), "{id:?}");
    assert_eq!(range_of(Some(id.scope()), Some(id.key())), digest.high..=digest.high, "{id:?}");
    assert!(range_of(None, Some(id.key())).contains(&digest.high), "{id:?}");
}

/// Computed with another implementation of SHA-256; never to be edited.
#[test]
fn numbers_never_change() {
    let id = |scope, operation, key| Id::new(scope, operation, key).unwrap();
    let charge = id("tenant", "POST /charges", "1");
    check(&charge, [-1_595_814_875_349_208_461, -78_363_153_243_152_012, 6_848_551_231_412_201_267]);
    check(
        &charge.step("email").unwrap(),
        [-1_595_814_875_349_208_461, -2_923_186_970_983_371_505, 3_558_896_535_045_482_162],
    );
    check(
        &id("anonymous", "PATCH /orders/{id}", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
        [3_393_526_426_501_929_837, 9_072_566_826_056_025_660, -7_999_994_135_601_591_533],
    );
    check(
        &id(&"t".repeat(255), &"o".repeat(512), &"k".repeat(255)),
        [-3_250_597_273_881_204_988, 747_882_295_269_842_083, -3_353_479_477_956_910_459],
    );
}

#[test]
fn parts_do_not_run_into_each_other() {
    let of = |scope, operation, key| Digest::of(&Id::new(scope, operation, key).unwrap());
    assert_ne!(of("ab", "c", "d"), of("a", "bc", "d"));
    assert_ne!(of("a", "bc", "d"), of("a", "b", "cd"));
}

#[test]
fn an_intent_and_its_steps_are_side_by_side() {
    let intent = Id::new("tenant", "payout", "7").unwrap();
    let step = intent.step("reserve").unwrap().step("inner").unwrap();
    assert_eq!(Digest::of(&intent).high, Digest::of(&step).high);
    assert_ne!(Digest::of(&intent).middle, Digest::of(&step).middle);
}
