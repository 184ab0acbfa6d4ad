//! Tests of the time of an SQLite file.

use super::*;

struct At(u64);

impl Clock for At {
    fn now_us(&self) -> u64 {
        self.0
    }
}

#[test]
fn nothing_falls_due_by_a_jump_and_nothing_is_written_too_short() {
    assert_eq!(Now::of(&At(900), &At(100)), Now { earliest_us: 100, latest_us: 900 });
    assert_eq!(Now::of(&At(100), &At(900)), Now { earliest_us: 100, latest_us: 900 });
    assert!(Now::of(&At(u64::MAX), &At(1)).latest_us > 0, "no clock becomes negative");
}
