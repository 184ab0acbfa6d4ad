//! Tests of the start positions of sweeps.

use std::collections::BTreeSet;

use super::*;

const GRACE_US: i64 = 120_000_000;
const MINUTE_US: i64 = 60_000_000;

fn id(key: u64) -> Id {
    Id::new("s", "o", &key.to_string()).unwrap()
}

fn cursor(due_us: i64, id: &Id) -> Bytes {
    Bytes::from([&due_us.to_be_bytes(), id.as_bytes()].concat())
}

/// A table, a clock, and sweeps over it as the store does them.
struct SweptTable {
    position: SweepPosition,
    clock_us: i64,
    rows: BTreeSet<(i64, Id)>,
    /// Rows that were removed, where an old transaction still sees them.
    dead: Vec<i64>,
}

impl SweptTable {
    fn new() -> Self {
        Self {
            position: SweepPosition::default(),
            clock_us: 1_000 * MINUTE_US,
            rows: BTreeSet::new(),
            dead: Vec::new(),
        }
    }

    /// One sweep that removes all but what `stays`. Returns what it found, and the number of dead rows it read.
    fn sweep(&mut self, limit: usize, pages_max: usize, stays: impl Fn(&Id) -> bool) -> (Vec<Id>, usize) {
        self.position.begin();
        self.position.purged(self.clock_us, Purged::All);
        let (mut all, mut walked, mut last): (Vec<Id>, usize, Option<(i64, Id)>) = (Vec::new(), 0, None);
        for _ in 0..pages_max {
            let start = self.position.start();
            let due = self.rows.iter().filter(|row| row.0 <= self.clock_us);
            let due = due.filter(|row| last.as_ref().is_none_or(|last| *row > last));
            let seen = due.filter(|(due_us, id)| *due_us >= start.from_us || start.kept.contains(id));
            let page: Vec<(i64, Id)> = seen.take(limit).cloned().collect();
            let full = page.len() == limit;
            let from_us = last.as_ref().map_or(i64::MIN, |(due_us, _)| *due_us).max(start.from_us);
            let to_us = if full { page.last().unwrap().0 } else { self.clock_us };
            walked += self.dead.iter().filter(|due_us| (from_us..=to_us).contains(due_us)).count();
            let next = page.last().filter(|_| full).map(|(due_us, id)| cursor(*due_us, id));
            let after = last.as_ref().map(|(due_us, id)| cursor(*due_us, id));
            let behind = after.as_ref().map_or(PageStart::Beginning(self.clock_us), PageStart::Cursor);
            self.position.page(behind, page.clone(), next.as_ref());
            for (due_us, id) in page {
                if !stays(&id) {
                    self.rows.remove(&(due_us, id.clone()));
                    self.dead.push(due_us);
                }
                last = Some((due_us, id.clone()));
                all.push(id);
            }
            if next.is_none() {
                break;
            }
        }
        (all, walked)
    }
}

#[test]
fn nothing_that_is_due_is_ever_hidden() {
    let mut dice = 7_u64;
    let mut roll = move |bound: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % bound
    };
    let mut table = SweptTable::new();
    let mut next = 0;
    for _ in 0..400 {
        for _ in 0..roll(40) {
            let due_us = table.clock_us + i64::try_from(roll(30)).unwrap() * MINUTE_US / 10;
            table.rows.insert((due_us, id(next)));
            next += 1;
        }
        table.clock_us += i64::try_from(roll(3)).unwrap() * MINUTE_US;
        let due: BTreeSet<Id> =
            table.rows.iter().filter(|row| row.0 <= table.clock_us).map(|row| row.1.clone()).collect();
        let (limit, pages_max) =
            (1 + usize::try_from(roll(20)).unwrap(), 1 + usize::try_from(roll(8)).unwrap());
        let (found, _) = table.sweep(limit, pages_max, |id| id.key().ends_with('7'));
        let wanted = due.len().min(limit * pages_max);
        assert_eq!(found.len(), wanted, "of {} that are due", due.len());
        assert!(found.iter().all(|id| due.contains(id)));
    }
    assert!(next > 5_000);
}

/// One record that nobody asks for again stays for days; later sweeps do not cost more for it.
#[test]
fn a_record_that_stays_does_not_hold_the_position() {
    let mut table = SweptTable::new();
    table.rows.insert((table.clock_us, id(0)));
    let mut dearest = 0;
    for round in 0..60_u64 {
        for key in 1..=100 {
            table.rows.insert((table.clock_us + i64::try_from(key).unwrap(), id(round * 100 + key)));
        }
        table.clock_us += MINUTE_US;
        let (found, walked) = table.sweep(30, 64, |one| *one == id(0));
        assert_eq!(found.len(), 101);
        dearest = dearest.max(walked);
    }
    // Only those of the grace period, not the six thousand since the beginning.
    assert!(dearest <= 300, "{dearest}");
}

/// If more is due than a sweep handles, the next one continues from there.
#[test]
fn a_sweep_that_is_never_finished_moves_on() {
    let mut table = SweptTable::new();
    for key in 0..20_000 {
        table.rows.insert((i64::try_from(key).unwrap(), id(key)));
    }
    let mut walked_in_all = 0;
    for _ in 0..40 {
        let (found, walked) = table.sweep(100, 5, |_| false);
        assert_eq!(found.len(), 500);
        walked_in_all += walked;
    }
    assert!(table.rows.is_empty());
    assert!(walked_in_all <= 40_000, "each dead row is walked over a few times at most: {walked_in_all}");
}

#[test]
fn a_clock_that_is_set_back_starts_over() {
    let mut table = SweptTable::new();
    table.sweep(10, 10, |_| false);
    assert_eq!(table.position.start().from_us, table.clock_us - GRACE_US);
    table.clock_us -= 500 * MINUTE_US;
    table.rows.insert((table.clock_us, id(1)));
    assert_eq!(table.sweep(10, 10, |_| false).0, [id(1)]);
}

/// A scan that started elsewhere, or was overtaken, does not move the start.
#[test]
fn pages_of_other_scans_are_not_taken_for_ours() {
    let position = SweepPosition::default();
    position.begin();
    position.purged(10 * MINUTE_US, Purged::All);
    position.page(PageStart::Cursor(&cursor(1, &id(1))), vec![(5, id(5))], None);
    position.page(PageStart::Beginning(9 * MINUTE_US), vec![(5, id(5))], None);
    assert_eq!(position.start(), BEGINNING);
    position.page(PageStart::Beginning(10 * MINUTE_US), vec![(5, id(5))], None);
    assert_eq!(position.start(), SweepStart { from_us: 8 * MINUTE_US, kept: vec![id(5)] });
}

#[test]
fn free_rows_are_looked_for_where_the_last_look_ended() {
    let position = SweepPosition::default();
    assert_eq!(position.begin(), i64::MIN);
    position.purged(10 * MINUTE_US, Purged::UpTo(5 * MINUTE_US));
    assert_eq!(position.begin(), 5 * MINUTE_US, "there were more");
    position.purged(11 * MINUTE_US, Purged::All);
    assert_eq!(position.begin(), 11 * MINUTE_US - GRACE_US, "none that was written late is left out");
    position.purged(3 * MINUTE_US, Purged::All);
    assert_eq!(position.begin(), i64::MIN, "the clock was set back");
    for _ in 4..FULL_SWEEP_EVERY {
        position.purged(20 * MINUTE_US, Purged::All);
        assert_eq!(position.begin(), 20 * MINUTE_US - GRACE_US);
    }
    position.purged(20 * MINUTE_US, Purged::All);
    assert_eq!(position.begin(), i64::MIN, "now and then from the very beginning");
}
