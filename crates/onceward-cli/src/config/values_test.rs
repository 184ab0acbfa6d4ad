//! Tests of parsing and printing the values of settings.

use std::time::Duration;

use super::{KeepFor, Period, Rate, Size, StatusOrClass};

#[test]
fn values_are_parsed_and_printed_in_their_usual_unit() {
    for (written, printed) in [
        ("30s", "30s"),
        ("1500ms", "1500ms"),
        ("60s", "1m"),
        ("24h", "24h"),
        ("1d", "24h"),
        ("7d", "7d"),
        ("0s", "0ms"),
        ("90 s", "90s"),
    ] {
        let period: Period = written.parse().unwrap();
        assert_eq!(period.to_string(), printed);
        assert_eq!(printed.parse::<Period>().unwrap(), period);
    }
    assert_eq!("forever".parse::<KeepFor>().unwrap().to_string(), "forever");
    assert_eq!("256KiB".parse::<Size>().unwrap(), Size(256 << 10));
    assert_eq!(Size(1 << 20).to_string(), "1MiB");
    assert_eq!(Size(1000).to_string(), "1000");
    let rate: Rate = "1000 / 60m".parse().unwrap();
    assert_eq!((rate.count.get(), rate.within), (1000, Duration::from_hours(1)));
    assert_eq!(rate.to_string(), "1000/1h");
    assert_eq!("5xx".parse::<StatusOrClass>().unwrap(), StatusOrClass::Class(5));
    assert_eq!("409".parse::<StatusOrClass>().unwrap(), StatusOrClass::Status(409));
}

#[test]
fn an_invalid_value_is_refused_with_an_example() {
    for wrong in
        ["", "s", "30", "1.5h", "-1s", "30 seconds", "99999999999999999999d", "18446744073709551615d"]
    {
        let error = wrong.parse::<Period>().unwrap_err();
        assert!(error.contains("30s"), "{wrong}: {error}");
    }
    assert!("never".parse::<KeepFor>().unwrap_err().contains("forever"));
    for wrong in ["", "1000", "1000/", "/1h", "0/1h", "1000/0s", "-1/1h", "4294967296/1h"] {
        let error = wrong.parse::<Rate>().unwrap_err();
        assert!(error.contains("1000/1h"), "{wrong}: {error}");
    }
    for wrong in ["", "KiB", "1GB", "1kib", "-1"] {
        assert!(wrong.parse::<Size>().unwrap_err().contains("256KiB"), "{wrong}");
    }
    for wrong in ["", "1xx", "6xx", "xx", "99", "600", "2XX"] {
        assert!(wrong.parse::<StatusOrClass>().is_err(), "{wrong}");
    }
    assert_eq!("250ms".parse::<Period>().unwrap().0, Duration::from_millis(250));
}
