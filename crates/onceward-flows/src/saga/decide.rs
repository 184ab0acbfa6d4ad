//! Decides how a saga continues, in one pure function: given what is recorded of every step, the next thing to do. It
//! is the only place that knows when something is undone.
//!
//! ```text
//! forward   the first step that has not succeeded is begun, waited for, or needs an operator
//! backward  once a step was refused, failed or closed, or its undo was asked for before all have succeeded:
//!           1. everything that has not begun is closed: a late copy of it cannot begin any more
//!           2. an action that is running, or may have taken effect, is waited for: nothing is undone on a guess
//!           3. what succeeded or failed is undone, in the declared order; what was refused or closed is not; what
//!              failed and has no undo is for an operator
//! ```

use std::time::Duration;

/// What is recorded of one direction of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is no receipt.
    NotBegun,
    /// It is to be tried again after this long. `unknown`: an earlier try may have taken effect.
    Waiting { due: Duration, unknown: bool },
    /// It is running; this remains of its lease.
    Running { lease: Duration },
    /// It did what was asked.
    Succeeded,
    /// Certainly nothing happened.
    Refused,
    /// It ended without what was asked, and something may have happened.
    Failed,
    /// It never began, and never will.
    Closed,
    /// It is unknown whether it took effect.
    Unknown,
    /// Its tries are used up.
    Dead,
}

impl Progress {
    /// Whether nothing more can happen in it.
    fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Refused | Self::Failed | Self::Closed)
    }
}

/// What a unit of a saga is to the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitKind {
    /// A step with an undo.
    Undoable,
    /// A step without one: what it did stays, and if it failed, an operator looks after it.
    Final,
    /// A timer, a signal or the list of a step that loops: it has no effect of its own.
    NoEffect,
}

/// One step, or one item of a step that loops, or one pause; and what is recorded of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitProgress {
    pub(crate) kind: UnitKind,
    pub(crate) action: Progress,
    pub(crate) undo: Progress,
}

/// In which order steps are undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UndoOrder {
    /// The last step first, one after the other.
    #[default]
    Reverse,
    /// The first step first, one after the other.
    Declared,
    /// All at the same time.
    Parallel,
}

/// Which direction of a step.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Its action.
    Action,
    /// Its undo.
    Undo,
}

impl Direction {
    /// Its name in tables and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Undo => "undo",
        }
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Begin this unit, or try it again.
    Begin(usize),
    /// Wait for the run that has it.
    Await { unit: usize, direction: Direction, lease: Duration },
    /// Nothing can be done before this long.
    Suspend(Duration),
    /// Close these: they have not begun.
    Close(Vec<usize>),
    /// Undo these.
    Undo(Vec<usize>),
    /// An operator must look at this one.
    NeedsPerson { unit: usize, direction: Direction },
    /// Every step has succeeded.
    Completed,
    /// Everything that had to be undone is.
    Undone,
}

/// Decides. `undo` says that the saga was asked to be undone. That alone undoes nothing: it closes what has
/// not begun. So whether a saga is completed or undone depends on receipts alone, and two drivers that know different
/// things cannot disagree about it.
pub(crate) fn decide(units: &[UnitProgress], undo: bool, order: UndoOrder) -> Next {
    let ended =
        |unit: &UnitProgress| matches!(unit.action, Progress::Refused | Progress::Failed | Progress::Closed);
    let is_open = units.iter().any(|unit| unit.action != Progress::Succeeded);
    if units.iter().any(ended) || (undo && is_open) { backward(units, order) } else { forward(units) }
}

fn forward(units: &[UnitProgress]) -> Next {
    let open = units.iter().position(|unit| unit.action != Progress::Succeeded);
    open.map_or(Next::Completed, |unit| next_of(units, unit, Direction::Action))
}

/// Whether one direction of a step cannot continue without a person. An undo has no other end than success.
pub(crate) fn needs_person(direction: Direction, progress: Progress) -> bool {
    match progress {
        Progress::Unknown | Progress::Dead => true,
        Progress::Refused | Progress::Failed | Progress::Closed => direction == Direction::Undo,
        _ => false,
    }
}

/// How one direction of a unit continues that has not come to its end.
fn next_of(units: &[UnitProgress], unit: usize, direction: Direction) -> Next {
    let UnitProgress { kind, action, undo } = units[unit];
    let (progress, has_code) = match direction {
        Direction::Action => (action, true),
        Direction::Undo => (undo, kind == UnitKind::Undoable),
    };
    match progress {
        Progress::Running { lease } => Next::Await { unit, direction, lease },
        _ if !has_code || needs_person(direction, progress) => Next::NeedsPerson { unit, direction },
        Progress::Waiting { due, .. } if !due.is_zero() => Next::Suspend(due),
        Progress::NotBegun | Progress::Waiting { .. } => match direction {
            Direction::Action => Next::Begin(unit),
            Direction::Undo => Next::Undo(vec![unit]),
        },
        // Nobody asks about what has ended.
        _ => Next::NeedsPerson { unit, direction },
    }
}

fn backward(units: &[UnitProgress], order: UndoOrder) -> Next {
    let closable = |action| matches!(action, Progress::NotBegun | Progress::Waiting { unknown: false, .. });
    let open: Vec<usize> =
        units.iter().enumerate().filter(|(_, unit)| closable(unit.action)).map(|(at, _)| at).collect();
    if !open.is_empty() {
        return Next::Close(open);
    }
    // What may still take effect comes first: it must be over before anything is undone, or the saga is complete.
    if let Some(at) = units.iter().rposition(|unit| !unit.action.is_over()) {
        return next_of(units, at, Direction::Action);
    }
    let mut left: Vec<usize> = units
        .iter()
        .enumerate()
        .filter(|(_, unit)| match unit.kind {
            UnitKind::Undoable => matches!(unit.action, Progress::Succeeded | Progress::Failed),
            UnitKind::Final => unit.action == Progress::Failed,
            UnitKind::NoEffect => false,
        })
        .filter(|(_, unit)| unit.undo != Progress::Succeeded)
        .map(|(at, _)| at)
        .collect();
    match order {
        UndoOrder::Reverse => left.reverse(),
        UndoOrder::Declared => {}
        UndoOrder::Parallel => return all_of(units, &left),
    }
    left.first().map_or(Next::Undone, |&at| next_of(units, at, Direction::Undo))
}

/// Undoes all that can be undone now; then waits for the rest; a person comes last.
fn all_of(units: &[UnitProgress], left: &[usize]) -> Next {
    let (mut now, mut later, mut pause, mut stuck) = (Vec::new(), None, None::<Duration>, None);
    for &at in left {
        match next_of(units, at, Direction::Undo) {
            Next::Undo(_) => now.push(at),
            Next::Suspend(due) => pause = Some(pause.map_or(due, |pause| pause.min(due))),
            person @ Next::NeedsPerson { .. } => stuck = stuck.or(Some(person)),
            wait => later = later.or(Some(wait)),
        }
    }
    if !now.is_empty() {
        return Next::Undo(now);
    }
    later.or(pause.map(Next::Suspend)).or(stuck).unwrap_or(Next::Undone)
}

#[cfg(test)]
#[path = "decide_test.rs"]
mod tests;

#[cfg(test)]
#[path = "interleavings_test.rs"]
mod interleavings;
