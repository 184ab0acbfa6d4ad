//! Tests of waiting for fjall's background work: it waits only while there is progress.

use std::cell::Cell;

use super::*;

const PATIENCE: Duration = Duration::from_millis(50);

fn sealed(sealed_memtables: usize) -> [Backlog; NAMES.len()] {
    let idle = Backlog { sealed_memtables: 0, level_zero_runs: 1 };
    [idle, Backlog { sealed_memtables, ..idle }, idle, idle, idle]
}

#[test]
fn no_wait_while_the_backlog_is_small() {
    let never_asked = || panic!("there is nothing to wait for");
    assert!(wait_while_behind(|| sealed(SEALED_MEMTABLES_MAX - 1), never_asked, PATIENCE).is_ok());
}

#[test]
fn slow_work_is_waited_for() {
    // Makes progress now and then, and takes longer than the limit in total.
    let began = Instant::now();
    let backlog = || {
        let moved = usize::try_from(began.elapsed().as_millis() / 20).unwrap();
        sealed(12_usize.saturating_sub(moved))
    };
    assert!(wait_while_behind(backlog, || Ok(()), PATIENCE * 4).is_ok());
    assert!(began.elapsed() > PATIENCE * 4);
}

#[test]
fn work_that_stands_still_is_not() {
    let error = wait_while_behind(|| sealed(9), || Ok(()), PATIENCE).unwrap_err();
    assert!(error.to_string().contains("stands still"), "{error}");
}

#[test]
fn work_that_failed_is_not() {
    let asked = Cell::new(0);
    let takes_writes = || {
        asked.set(asked.get() + 1);
        if asked.get() < 3 { Ok(()) } else { Err(fjall::Error::Poisoned) }
    };
    let error = wait_while_behind(|| sealed(9), takes_writes, Duration::MAX).unwrap_err();
    assert!(matches!(error, fjall::Error::Poisoned));
}
