use super::*;

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600 * SECOND;
/// Some time in 2026.
const START: u64 = 1_790_000_000 * SECOND;

#[derive(Default)]
struct Hand(AtomicU64);

impl Hand {
    fn advance(&self, us: u64) {
        self.0.fetch_add(us, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn clock(wall_us: u64, last_seen_us: u64) -> (SteadyClock, Arc<Hand>, Arc<Hand>) {
    let (wall, elapsed) = (Arc::new(Hand::default()), Arc::new(Hand::default()));
    wall.advance(wall_us);
    (SteadyClock::of(wall.clone(), elapsed.clone(), last_seen_us), wall, elapsed)
}

/// Both clocks continue.
fn pass(wall: &Hand, elapsed: &Hand, us: u64) {
    wall.advance(us);
    elapsed.advance(us);
}

#[test]
fn it_shows_the_time_of_the_wall_clock_while_that_is_right() {
    for last_seen_us in [0, START - 1, START - 5 * 60 * SECOND] {
        let (clock, wall, elapsed) = clock(START, last_seen_us);
        assert_eq!(clock.now_us(), START);
        pass(&wall, &elapsed, 30 * HOUR);
        assert_eq!(clock.now_us(), START + 30 * HOUR);
    }
}

#[test]
fn a_jump_in_either_direction_changes_nothing_and_is_counted() {
    let (clock, wall, elapsed) = clock(START, START);
    let before = clock_jumps();
    wall.advance(25 * HOUR);
    pass(&wall, &elapsed, 2 * SECOND);
    assert_eq!(clock.now_us(), START + 2 * SECOND);
    assert_eq!(clock_jumps(), before + 1);
    pass(&wall, &elapsed, 2 * HOUR);
    assert_eq!(clock.now_us(), START + 2 * HOUR + 2 * SECOND, "it is not believed later either");
    wall.0.fetch_sub(26 * HOUR, Ordering::Relaxed);
    pass(&wall, &elapsed, 2 * SECOND);
    assert_eq!(clock.now_us(), START + 2 * HOUR + 4 * SECOND);
    assert_eq!(clock_jumps(), before + 2);
}

#[test]
fn a_machine_that_boots_in_1970_goes_on_from_the_last_time_seen() {
    let (clock, wall, elapsed) = clock(5 * SECOND, START);
    assert_eq!(clock.now_us(), START);
    // A second later the time is corrected.
    wall.advance(START + HOUR);
    pass(&wall, &elapsed, SECOND);
    assert_eq!(clock.now_us(), START + SECOND);
    pass(&wall, &elapsed, HOUR);
    assert_eq!(clock.now_us(), START + HOUR + SECOND);
}

#[test]
fn after_a_long_time_away_nothing_falls_due_until_the_clock_had_time_to_be_corrected() {
    let (right, wall, elapsed) = clock(START + 25 * HOUR, START);
    assert_eq!(right.now_us(), START);
    pass(&wall, &elapsed, 59 * SECOND);
    assert_eq!(right.now_us(), START + 59 * SECOND);
    pass(&wall, &elapsed, 2 * SECOND);
    right.now_us();
    assert_eq!(right.now_us(), START + 25 * HOUR + 61 * SECOND, "the process was away");

    let (wrong, wall, elapsed) = clock(START + 25 * HOUR, START);
    pass(&wall, &elapsed, 10 * SECOND);
    wrong.now_us();
    wall.0.fetch_sub(25 * HOUR, Ordering::Relaxed);
    pass(&wall, &elapsed, HOUR);
    wrong.now_us();
    assert_eq!(wrong.now_us(), START + HOUR + 10 * SECOND, "the clock was wrong");
}
