//! Tests of the URL cache.

use super::*;

#[test]
fn a_cached_url_equals_a_parsed_one() {
    let urls = UrlCache::default();
    let texts: Vec<String> =
        (0..10 * SLOTS).map(|at| format!("https://a.example/Orders/{at}?x=%20")).collect();
    for _ in 0..3 {
        for text in &texts {
            // Twice in a row, so that the second is remembered.
            for _ in 0..2 {
                assert_eq!(urls.read(text).unwrap(), Url::parse(text).unwrap());
            }
        }
    }
}

#[test]
fn an_invalid_url_is_refused_each_time_and_a_long_one_is_not_cached() {
    let urls = UrlCache::default();
    for _ in 0..2 {
        assert!(urls.read("ftp://a.example/").unwrap_err().to_string().contains("neither http nor https"));
        assert!(urls.read("charges").unwrap_err().to_string().contains("is no URL"));
    }
    let long = format!("http://a.example/{}", "x".repeat(TEXT_BYTES_MAX));
    assert_eq!(urls.read(&long).unwrap().as_str(), long);
    assert!(urls.slots.iter().all(|slot| slot.read().unwrap().is_none()));
}
