//! Hostile bytes for tickets and cursors, which clients send back.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use onceward_fuzz::Fuzz;

use super::{TicketText, attempt, cursor};
use crate::admin::problem::Problem;

#[test]
fn fuzz_ticket() {
    let ticket = br#"{"s":"acme","o":"charge","k":"k","a":"00000000000000000000000000000001","f":7,"p":{"preset":"http"}}"#;
    let words: &[&[u8]] =
        &[b"\"p\":{\"lease_ms\":", b"18446744073709551615", b"\"ledger\"", b"null", b"-1", b"{", b"\"", b","];
    Fuzz::new("ticket").with_seeds([&ticket[..]]).with_words(words).run(|input| {
        // As it is, and as what the text contains.
        let as_it_is = TicketText(String::from_utf8_lossy(input).into_owned()).read().is_ok();
        let read = TicketText(BASE64_URL_SAFE_NO_PAD.encode(input)).read();
        (as_it_is, read.map_err(why).map(|ticket| ticket.policy().lease()))
    });
}

/// Where JSON ends is left out: only what is wrong counts as new.
fn why(problem: Problem) -> String {
    match problem {
        Problem::Invalid(why) => why.chars().filter(|letter| !letter.is_ascii_digit()).collect(),
        other => other.name().to_owned(),
    }
}

#[test]
fn fuzz_cursor_and_attempt() {
    let seeds = ["AAAAAAAAAAc", "00000000-0000-0000-0000-000000000001", "1f"];
    Fuzz::new("cursor").with_seeds(seeds).with_words(&[b"-", b"_", b"=", b"f"]).run(|input| {
        let text = String::from_utf8_lossy(input);
        (cursor(&text).map_err(|problem| problem.name()).is_ok(), attempt(&text).is_ok())
    });
}
