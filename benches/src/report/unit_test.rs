use super::*;

#[test]
fn figures_are_short() {
    let figures = [0.5, 2.0, 12.34, 123.4, 1_234_567.0, -1_000.0].map(|value| figure(value, Unit::PerSecond));
    assert_eq!(figures, ["0.5/s", "2/s", "12.3/s", "123/s", "1,234,567/s", "-1,000/s"]);
}

#[test]
fn counts_are_said_as_one_says_them() {
    let said = [500, 10_000, 100_000, 1_000_000, 10_000_000].map(many);
    assert_eq!(said, ["500", "10,000", "100 k", "1 M", "10 M"]);
}
