use super::*;
use crate::latency::QUANTILES;

fn line(failed: usize) -> String {
    let quantiles: Vec<_> = QUANTILES.iter().map(|quantile| (quantile * 1e4).to_string()).collect();
    format!("Running 2s test\nRESULT 50000 2000000 {failed} {}\n", quantiles.join(" "))
}

#[test]
fn what_our_script_prints_is_read() {
    assert!((parse(&line(0)).unwrap().value() - 25_000.0).abs() < 1e-6);
}

#[test]
fn a_load_with_a_failed_request_is_no_measurement() {
    assert!(parse(&line(1)).is_none());
    assert!(parse("Running 2s test").is_none());
}

#[test]
fn the_script_asks_for_the_quantiles_that_are_kept() {
    let percents: Vec<_> =
        QUANTILES.iter().map(|quantile| format!("{}", (quantile * 1e6).round() / 1e4)).collect();
    assert!(SCRIPT.contains(&percents.join(", ")), "{percents:?}");
}
