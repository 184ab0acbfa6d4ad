//! The driver finds what it is there to find: a driver that never rings proves nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use onceward_fuzz::Fuzz;

/// A reader with a bug behind a magic word, a length and a limit.
fn broken(input: &[u8]) -> &'static str {
    let Some(rest) = input.strip_prefix(b"MAGIC") else { return "no magic" };
    let [high, low, body @ ..] = rest else { return "no length" };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length < 0x8000 {
        return if body.len() < length { "cut off" } else { "read" };
    }
    // A real decoder would have checked.
    std::str::from_utf8(&body[..length]).map_or("not text", |_| "text")
}

#[test]
fn a_missing_check_is_found() {
    let fuzz = Fuzz::new("none").with_seeds([&b"MAGIC\0\x01a"[..]]);
    let found = catch_unwind(AssertUnwindSafe(|| fuzz.run(broken)));
    assert!(found.is_err(), "the bug was not found");
}

#[test]
fn the_same_seed_makes_the_same_inputs_and_words_get_in() {
    let sum = |words: &[&[u8]]| {
        let (sum, with_word) = (Cell::new(0_u64), Cell::new(0));
        Fuzz::new("none").with_seeds([&b"some input"[..]]).with_words(words).run(|input| {
            sum.set(
                input.iter().fold(sum.get(), |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())),
            );
            with_word.set(with_word.get() + u32::from(input.windows(6).any(|six| six == b"dragon")));
        });
        (sum.get(), with_word.get())
    };
    assert_eq!(sum(&[b"dragon"]), sum(&[b"dragon"]));
    assert!(sum(&[b"dragon"]).1 > 50);
    assert_eq!(sum(&[]).1, 0);
}

#[test]
#[should_panic(expected = "has no seeds")]
fn a_target_without_seeds_is_refused() {
    Fuzz::new("none").run(|_| ());
}
