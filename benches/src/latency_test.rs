use super::*;

#[test]
fn quantiles_of_a_thousand_calls() {
    let latency = Latency::from_samples((0..=1000_u16).rev().map(f32::from).collect()).unwrap();
    let rounded = [0.5, 0.99, 0.9999].map(|quantile| format!("{:.0}", latency.at(quantile)));
    assert_eq!(rounded, ["500", "990", "1000"]);
}

#[test]
fn no_calls_no_latency() {
    assert_eq!(Latency::from_samples(Vec::new()), None);
    assert_eq!(Latency::median_of(&[]), None);
}

#[test]
fn one_slow_round_does_not_count() {
    let round = |micros: f64| Latency::from_quantiles(vec![micros; QUANTILES.len()]);
    let middle = Latency::median_of(&[round(10.0), round(900.0), round(12.0)]).unwrap();
    assert!((middle.at(0.99) - 12.0).abs() < f64::EPSILON);
}
