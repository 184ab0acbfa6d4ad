use super::filled;
use crate::random::Random;

#[test]
fn each_sending_has_values_of_its_own() {
    let mut random = Random::new(7);
    let template = "{count} {uuid} {unix} {unix_ms} {other}";
    let (one, other) = (filled(template, &mut random, 1), filled(template, &mut random, 2));
    assert!(one.starts_with("1 ") && other.starts_with("2 ") && one.ends_with(" {other}"), "{one}");
    let uuid = |text: &str| text.split(' ').nth(1).unwrap().to_owned();
    assert_ne!(uuid(&one), uuid(&other));
    assert_eq!(uuid(&one).len(), 36);
}
