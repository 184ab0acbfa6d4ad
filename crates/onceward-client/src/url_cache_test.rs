//! Tests of the URL cache.

use super::*;

#[test]
fn what_was_read_before_is_the_same_as_what_is_read_again() {
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
fn what_is_no_url_is_refused_each_time_and_what_is_long_is_not_kept() {
    let urls = UrlCache::default();
    for _ in 0..2 {
        assert!(urls.read("ftp://a.example/").unwrap_err().to_string().contains("neither http nor https"));
        assert!(urls.read("charges").unwrap_err().to_string().contains("is no URL"));
    }
    let long = format!("http://a.example/{}", "x".repeat(TEXT_BYTES_MAX));
    assert_eq!(urls.read(&long).unwrap().as_str(), long);
    assert!(urls.slots.iter().all(|slot| slot.read().unwrap().is_none()));
}
