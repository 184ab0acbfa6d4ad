//! Every cell of the decision.

use std::time::Duration;

use super::Direction::{Action, Undo};
use super::Progress::{Closed, Dead, Failed, NotBegun, Refused, Running, Succeeded, Unknown, Waiting};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LATER: Progress = Waiting { due: SECOND, unknown: false };
const NOW: Progress = Waiting { due: Duration::ZERO, unknown: false };
const UNKNOWN_LATER: Progress = Waiting { due: SECOND, unknown: true };
const UNKNOWN_NOW: Progress = Waiting { due: Duration::ZERO, unknown: true };
const RUNNING: Progress = Running { lease: SECOND };

fn unit(action: Progress, undo: Progress) -> UnitProgress {
    UnitProgress { kind: UnitKind::Undoable, action, undo }
}

fn wait(unit: usize, direction: Direction) -> Next {
    Next::Await { unit, direction, lease: SECOND }
}

fn person(unit: usize, direction: Direction) -> Next {
    Next::NeedsPerson { unit, direction }
}

/// The second step in every state, after one that succeeded, without a reason to undo.
#[test]
fn a_saga_goes_forward_step_by_step() {
    let rows = [
        (NotBegun, Next::Begin(1)),
        (NOW, Next::Begin(1)),
        (LATER, Next::Suspend(SECOND)),
        (UNKNOWN_NOW, Next::Begin(1)),
        (UNKNOWN_LATER, Next::Suspend(SECOND)),
        (RUNNING, wait(1, Action)),
        (Succeeded, Next::Completed),
        (Refused, Next::Undo(vec![0])),
        (Failed, Next::Undo(vec![1])),
        (Closed, Next::Undo(vec![0])),
        (Unknown, person(1, Action)),
        (Dead, person(1, Action)),
    ];
    for (second, expected) in rows {
        let units = [unit(Succeeded, NotBegun), unit(second, NotBegun)];
        assert_eq!(decide(&units, false, UndoOrder::Reverse), expected, "{second:?}");
    }
}

/// The same, when the saga is to be undone.
#[test]
fn nothing_is_undone_before_every_action_is_over() {
    let rows = [
        (NotBegun, Next::Close(vec![1])),
        (NOW, Next::Close(vec![1])),
        (LATER, Next::Close(vec![1])),
        // It may have taken effect: it is tried again, under its key, until that is known.
        (UNKNOWN_NOW, Next::Begin(1)),
        (UNKNOWN_LATER, Next::Suspend(SECOND)),
        (RUNNING, wait(1, Action)),
        // It came too late.
        (Succeeded, Next::Completed),
        (Refused, Next::Undo(vec![0])),
        (Failed, Next::Undo(vec![1])),
        (Closed, Next::Undo(vec![0])),
        (Unknown, person(1, Action)),
        (Dead, person(1, Action)),
    ];
    for order in [UndoOrder::Reverse, UndoOrder::Declared, UndoOrder::Parallel] {
        for (second, expected) in &rows {
            let units = [unit(Succeeded, NotBegun), unit(*second, NotBegun)];
            let expected = match (order, expected) {
                (UndoOrder::Declared, Next::Undo(_)) => &Next::Undo(vec![0]),
                (UndoOrder::Parallel, Next::Undo(units)) if units == &[1] => &Next::Undo(vec![0, 1]),
                (_, expected) => expected,
            };
            assert_eq!(decide(&units, true, order), *expected, "{order:?} {second:?}");
        }
    }
}

/// The undo of the second step in every state.
#[test]
fn undos_are_in_order_and_wait_for_each_other() {
    let rows = [
        (NotBegun, Next::Undo(vec![1])),
        (NOW, Next::Undo(vec![1])),
        (LATER, Next::Suspend(SECOND)),
        (UNKNOWN_NOW, Next::Undo(vec![1])),
        (UNKNOWN_LATER, Next::Suspend(SECOND)),
        (RUNNING, wait(1, Undo)),
        (Succeeded, Next::Undo(vec![0])),
        (Refused, person(1, Undo)),
        (Failed, person(1, Undo)),
        (Closed, person(1, Undo)),
        (Unknown, person(1, Undo)),
        (Dead, person(1, Undo)),
    ];
    for (undo, expected) in rows {
        let units = [unit(Succeeded, NotBegun), unit(Succeeded, undo), unit(Refused, NotBegun)];
        assert_eq!(decide(&units, false, UndoOrder::Reverse), expected, "{undo:?}");
    }
}

#[test]
fn parallel_undos_leave_the_stuck_one_for_last() {
    let decide = |first, second| {
        let units = [unit(Succeeded, first), unit(Succeeded, second), unit(Refused, NotBegun)];
        decide(&units, false, UndoOrder::Parallel)
    };
    assert_eq!(decide(NotBegun, Dead), Next::Undo(vec![0]));
    assert_eq!(decide(LATER, Dead), Next::Suspend(SECOND));
    assert_eq!(decide(RUNNING, LATER), wait(0, Undo));
    assert_eq!(decide(Succeeded, Dead), person(1, Undo));
    assert_eq!(decide(Succeeded, Succeeded), Next::Undone);
}

#[test]
fn a_step_without_undo_and_a_pause_are_passed_over() {
    let last = UnitProgress { kind: UnitKind::Final, ..unit(Succeeded, NotBegun) };
    let pause = UnitProgress { kind: UnitKind::NoEffect, ..unit(LATER, NotBegun) };
    let units = [unit(Succeeded, NotBegun), last, pause, unit(Closed, NotBegun)];
    assert_eq!(decide(&units, false, UndoOrder::Reverse), Next::Close(vec![2]));
    assert_eq!(decide(&[last, pause], false, UndoOrder::Reverse), Next::Suspend(SECOND));
    assert_eq!(decide(&[last, pause], true, UndoOrder::Reverse), Next::Close(vec![1]));
    let closed = UnitProgress { action: Closed, ..pause };
    assert_eq!(decide(&[units[0], last, closed], true, UndoOrder::Reverse), Next::Undo(vec![0]));
    assert_eq!(decide(&[last, closed], true, UndoOrder::Reverse), Next::Undone);
}

/// What it did stays, but what a failure left behind is for an operator, who then says that it is undone.
#[test]
fn a_failed_step_without_undo_is_undone_by_a_person() {
    for order in [UndoOrder::Reverse, UndoOrder::Declared, UndoOrder::Parallel] {
        let decide = |first, undo| {
            let last = UnitProgress { kind: UnitKind::Final, ..unit(Failed, undo) };
            decide(&[unit(Succeeded, first), last], false, order)
        };
        let is_later = order != UndoOrder::Reverse;
        let expected = if is_later { Next::Undo(vec![0]) } else { person(1, Undo) };
        assert_eq!(decide(NotBegun, NotBegun), expected, "{order:?}");
        assert_eq!(decide(Succeeded, NotBegun), person(1, Undo), "{order:?}");
        assert_eq!(decide(NotBegun, Succeeded), Next::Undo(vec![0]), "{order:?}");
        assert_eq!(decide(Succeeded, Succeeded), Next::Undone, "{order:?}");
    }
}
