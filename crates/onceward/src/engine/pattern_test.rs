use super::*;

#[test]
fn patterns_match_names_prefixes_and_routes() {
    #[rustfmt::skip]
    let table: &[(&str, &[&str], &[&str])] = &[
        ("payout", &["payout"], &["payouts", "pay", "payout#step"]),
        ("pay*", &["pay", "payout", "pay/out"], &["PAY", "repay", "payout#step"]),
        ("*", &["payout", "POST /orders"], &["payout#step"]),
        ("POST /orders/{id}/pay", &["POST /orders/7/pay"], &["POST /orders//pay", "POST /orders/7/pay/now", "POST /orders/7", "GET /orders/7/pay", "POST /orders/7/pay#step"]),
        ("POST /orders/{id}", &["POST /orders/7"], &["POST /orders", "POST /orders/", "POST /orders/7#step"]),
    ];
    for (pattern, fitting, others) in table {
        let pattern = Pattern::parse(pattern).unwrap();
        for operation in *fitting {
            assert!(pattern.matches(operation), "{pattern:?} and {operation}");
        }
        for operation in *others {
            assert!(!pattern.matches(operation), "{pattern:?} and {operation}");
        }
    }
}

#[test]
fn what_is_no_pattern_is_refused() {
    for text in ["", "a*b", "a#b", "x/{id", "x/{a}{b}", "x/a{b}", "x/{{a}}"] {
        assert!(Pattern::parse(text).is_err(), "{text}");
    }
}
