//! All interleavings of action, undo, crash and late arrival for a saga of two steps: every state that two drivers, the
//! network and the participants can reach is visited once, with the real [`decide`]. The participants know no keys, so
//! that nothing but the receipts protects them.
//!
//! * A driver may crash at any point, and may have lost its saga to another one without knowing it.
//! * A request may arrive at any time after it was sent, also after its driver crashed or gave up waiting.
//! * A person may ask at any time that the saga be undone, and settles unknown outcomes by what really happened.
//!
//! Five broken variants must be caught: a search that cannot fail proves nothing.

use std::collections::HashSet;

use super::*;

const STEPS: usize = 2;
/// Drivers that are started: the first one, and those that take over from it.
const DRIVERS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    No,
    /// The receipt of an action is written when it has ended.
    RegisteredAfter,
    /// A claim reads, and then writes whatever is there by then.
    CheckThenMark,
    /// An action that never began counts as undone, and its receipt stays open.
    NullUndoLeavesOpen,
    /// Another driver does not get the result of a step, which its undo needs.
    ResultDropped,
    /// An unknown outcome counts as a failure.
    UndoOnUnknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slip {
    Absent,
    Held(usize),
    Done(Reply),
    Unknown,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Succeeded,
    Refused,
    Failed,
    None,
}

/// What a driver is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// Has seen that there is no receipt; only of a broken variant.
    Checked(usize, bool),
    Claimed(usize, bool),
    Sent(usize, bool),
    Answered(usize, bool, Reply),
    Crashed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Driver {
    doing: Doing,
    known: [(Slip, Slip); STEPS],
    /// Whether it has the result of the step.
    has_result: [bool; STEPS],
    knows_abort: bool,
    is_loaded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Situation {
    /// Receipts of action and undo.
    slips: [(Slip, Slip); STEPS],
    /// Requests on their way: of the action, of the undo, of an undo that does not know what to undo.
    sent: [(u8, u8, u8); STEPS],
    effects: [u8; STEPS],
    undone: [u8; STEPS],
    abort: bool,
    ended: Option<bool>,
    drivers: Vec<Driver>,
}

type Found = Result<(), &'static str>;

impl Situation {
    fn new() -> Self {
        let nothing = (Slip::Absent, Slip::Absent);
        Self {
            slips: [nothing; STEPS],
            sent: [(0, 0, 0); STEPS],
            effects: [0; STEPS],
            undone: [0; STEPS],
            abort: false,
            ended: None,
            drivers: vec![Driver::new()],
        }
    }

    fn slip(&mut self, step: usize, is_undo: bool) -> &mut Slip {
        if is_undo { &mut self.slips[step].1 } else { &mut self.slips[step].0 }
    }

    /// Everything that can happen next.
    fn next(&self, broken: Broken) -> Result<Vec<Self>, &'static str> {
        let mut nexts = Vec::new();
        if !self.abort && self.ended.is_none() {
            nexts.push(Self { abort: true, ..self.clone() });
        }
        // The lease of the saga ends: another driver takes over, whatever the last one is doing.
        if self.drivers.len() < DRIVERS && self.ended.is_none() {
            let mut situation = self.clone();
            situation.drivers.push(Driver::new());
            nexts.push(situation);
        }
        for step in 0..STEPS {
            self.arrivals(step, &mut nexts)?;
            for is_undo in [false, true] {
                self.lapse_or_settle(step, is_undo, &mut nexts);
            }
        }
        for at in 0..self.drivers.len() {
            if self.drivers[at].doing != Doing::Crashed {
                let mut situation = self.clone();
                situation.drivers[at] = Driver { doing: Doing::Crashed, ..Driver::new() };
                nexts.push(situation);
                self.drive(at, broken, &mut nexts)?;
            }
        }
        Ok(nexts)
    }

    /// A request arrives; its answer reaches the driver that waits for it, or nobody.
    fn arrivals(&self, step: usize, nexts: &mut Vec<Self>) -> Found {
        let (actions, undos, blind) = self.sent[step];
        if actions > 0 {
            for reply in [Reply::Succeeded, Reply::Refused, Reply::Failed] {
                let mut situation = self.clone();
                situation.sent[step].0 -= 1;
                if reply != Reply::Refused {
                    if situation.undone[step] > 0 || situation.slips[step].0 == Slip::Closed {
                        return Err("an action after its undo");
                    }
                    situation.effects[step] += 1;
                    if situation.effects[step] > 1 {
                        return Err("an action twice");
                    }
                }
                situation.answer(step, false, reply, nexts);
            }
        }
        if undos > 0 {
            let mut situation = self.clone();
            situation.sent[step].1 -= 1;
            situation.undone[step] += 1;
            if situation.undone[step] > situation.effects[step] {
                return Err("an undo without its effect");
            }
            situation.answer(step, true, Reply::Succeeded, nexts);
        }
        if blind > 0 {
            let mut situation = self.clone();
            situation.sent[step].2 -= 1;
            situation.answer(step, true, Reply::Succeeded, nexts);
        }
        Ok(())
    }

    fn answer(self, step: usize, is_undo: bool, reply: Reply, nexts: &mut Vec<Self>) {
        for at in 0..self.drivers.len() {
            if self.drivers[at].doing == Doing::Sent(step, is_undo) {
                let mut heard = self.clone();
                heard.drivers[at].doing = Doing::Answered(step, is_undo, reply);
                nexts.push(heard);
            }
        }
        nexts.push(self);
    }

    /// What a crashed driver held becomes unknown; what is unknown is settled once nothing is on its way any more.
    fn lapse_or_settle(&self, step: usize, is_undo: bool, nexts: &mut Vec<Self>) {
        let mut situation = self.clone();
        let (actions, undos, blind) = situation.sent[step];
        let (in_flight, has_happened) = if is_undo {
            (undos + blind, situation.undone[step])
        } else {
            (actions, situation.effects[step])
        };
        let slip = situation.slip(step, is_undo);
        match *slip {
            Slip::Held(driver) if self.drivers[driver].doing == Doing::Crashed => *slip = Slip::Unknown,
            Slip::Unknown if in_flight == 0 => {
                *slip = match (is_undo, has_happened) {
                    (_, 1..) => Slip::Done(Reply::Succeeded),
                    (false, 0) => Slip::Done(Reply::Refused),
                    // It is tried again.
                    (true, 0) => Slip::Absent,
                }
            }
            _ => return,
        }
        nexts.push(situation);
    }

    /// One move of a driver.
    fn drive(&self, at: usize, broken: Broken, nexts: &mut Vec<Self>) -> Found {
        let mut situation = self.clone();
        match self.drivers[at].doing {
            Doing::Crashed => return Ok(()),
            Doing::Checked(step, is_undo) => {
                *situation.slip(step, is_undo) = Slip::Held(at);
                situation.drivers[at].doing = Doing::Claimed(step, is_undo);
            }
            Doing::Claimed(step, is_undo) => {
                let is_blind = situation.drivers[at].known[step].0 == Slip::Done(Reply::Succeeded)
                    && !situation.drivers[at].has_result[step];
                let sent = &mut situation.sent[step];
                match (is_undo, is_blind) {
                    (false, _) => sent.0 += 1,
                    (true, false) => sent.1 += 1,
                    (true, true) => sent.2 += 1,
                }
                situation.drivers[at].doing = Doing::Sent(step, is_undo);
            }
            // It gives up waiting; the request may still arrive.
            Doing::Sent(step, is_undo) => {
                situation.drivers[at].doing = Doing::Answered(step, is_undo, Reply::None);
            }
            Doing::Answered(step, is_undo, reply) => {
                let mine =
                    if broken == Broken::RegisteredAfter && !is_undo { Slip::Absent } else { Slip::Held(at) };
                let slip = situation.slip(step, is_undo);
                if *slip == mine {
                    *slip = if reply == Reply::None { Slip::Unknown } else { Slip::Done(reply) };
                }
                let now = *slip;
                let driver = &mut situation.drivers[at];
                driver.doing = Doing::Nothing;
                driver.learn(step, is_undo, now);
                driver.has_result[step] |= !is_undo;
            }
            Doing::Nothing => return self.decide(at, broken, nexts),
        }
        nexts.push(situation);
        Ok(())
    }

    fn decide(&self, at: usize, broken: Broken, nexts: &mut Vec<Self>) -> Found {
        let mut situation = self.clone();
        let driver = &self.drivers[at];
        let units = driver.known.map(|(action, undo)| UnitProgress {
            kind: UnitKind::Undoable,
            action: progress(action, broken),
            undo: progress(undo, Broken::No),
        });
        let next = super::decide(&units, driver.knows_abort, UndoOrder::Reverse);
        match next {
            Next::Begin(_) | Next::Completed => {}
            _ if !driver.is_loaded => {
                situation.load(at, broken);
                nexts.push(situation);
                return Ok(());
            }
            _ => {}
        }
        match next {
            Next::Begin(step) => situation.claim(at, step, false, broken),
            Next::Undo(steps) => situation.claim(at, steps[0], true, broken),
            Next::Close(steps) => {
                let slip = situation.slip(steps[0], false);
                if *slip == Slip::Absent && broken != Broken::NullUndoLeavesOpen {
                    *slip = Slip::Closed;
                }
                let now = if broken == Broken::NullUndoLeavesOpen { Slip::Closed } else { *slip };
                situation.drivers[at].learn(steps[0], false, now);
            }
            Next::Await { .. } | Next::NeedsPerson { .. } | Next::Suspend(_) => {
                situation.load(at, broken);
                if situation == *self {
                    return Ok(());
                }
            }
            // Only the driver that has the lease of the saga can end it.
            Next::Completed | Next::Undone if at + 1 < self.drivers.len() || self.ended.is_some() => {
                return Ok(());
            }
            Next::Completed => {
                situation.ended = Some(true);
                if self.effects != [1; STEPS] || self.undone != [0; STEPS] {
                    return Err("completed without an effect");
                }
            }
            Next::Undone => {
                situation.ended = Some(false);
                if self.effects != self.undone {
                    return Err("an effect without its undo");
                }
            }
        }
        nexts.push(situation);
        Ok(())
    }

    fn claim(&mut self, at: usize, step: usize, is_undo: bool, broken: Broken) {
        let slip = self.slip(step, is_undo);
        let now = *slip;
        if now == Slip::Absent {
            self.drivers[at].doing = match broken {
                Broken::CheckThenMark => Doing::Checked(step, is_undo),
                Broken::RegisteredAfter if !is_undo => Doing::Claimed(step, is_undo),
                _ => {
                    *slip = Slip::Held(at);
                    Doing::Claimed(step, is_undo)
                }
            };
            return;
        }
        let driver = &mut self.drivers[at];
        driver.learn(step, is_undo, now);
        driver.has_result[step] |= broken != Broken::ResultDropped;
        if matches!(now, Slip::Done(_)) && !driver.is_loaded {
            self.load(at, broken);
        }
    }

    fn load(&mut self, at: usize, broken: Broken) {
        let (slips, abort) = (self.slips, self.abort);
        let driver = &mut self.drivers[at];
        let was = std::mem::replace(&mut driver.known, slips);
        if broken == Broken::NullUndoLeavesOpen {
            for (known, was) in driver.known.iter_mut().zip(was) {
                if was.0 == Slip::Closed {
                    known.0 = Slip::Closed;
                }
            }
        }
        driver.knows_abort |= abort;
        driver.is_loaded = true;
        if broken != Broken::ResultDropped {
            driver.has_result = [true; STEPS];
        }
    }
}

impl Driver {
    fn new() -> Self {
        Self {
            doing: Doing::Nothing,
            known: [(Slip::Absent, Slip::Absent); STEPS],
            has_result: [false; STEPS],
            knows_abort: false,
            is_loaded: false,
        }
    }

    fn learn(&mut self, step: usize, is_undo: bool, slip: Slip) {
        let known = &mut self.known[step];
        if is_undo { known.1 = slip } else { known.0 = slip }
    }
}

fn progress(slip: Slip, broken: Broken) -> Progress {
    match slip {
        Slip::Absent => Progress::NotBegun,
        Slip::Held(_) => Progress::Running { lease: Duration::from_secs(1) },
        Slip::Done(Reply::Succeeded) => Progress::Succeeded,
        Slip::Done(Reply::Refused) => Progress::Refused,
        Slip::Done(Reply::Failed) => Progress::Failed,
        Slip::Unknown if broken == Broken::UndoOnUnknown => Progress::Failed,
        Slip::Done(Reply::None) | Slip::Unknown => Progress::Unknown,
        Slip::Closed => Progress::Closed,
    }
}

/// Visits every state. Gives the first violation, or how many states there are and how many of them are ends.
fn explore(broken: Broken) -> Result<(usize, usize, usize), &'static str> {
    let (mut seen, mut open) = (HashSet::from([Situation::new()]), vec![Situation::new()]);
    let (mut completed, mut undone) = (0, 0);
    while let Some(situation) = open.pop() {
        match situation.ended {
            Some(true) => completed += 1,
            Some(false) => undone += 1,
            None => {}
        }
        for next in situation.next(broken)? {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok((seen.len(), completed, undone))
}

#[test]
fn no_interleaving_leaves_an_effect_without_its_undo() {
    let (states, completed, undone) = explore(Broken::No).unwrap();
    println!("{states} states, {completed} completed, {undone} undone");
    assert!(states > 10_000 && completed > 0 && undone > 0, "{states} {completed} {undone}");
}

#[test]
fn every_broken_variant_is_caught() {
    let expected = [
        (
            Broken::RegisteredAfter,
            &["an effect without its undo", "an action after its undo", "an action twice"][..],
        ),
        (
            Broken::CheckThenMark,
            &["an action twice", "an action after its undo", "an undo without its effect"],
        ),
        (
            Broken::NullUndoLeavesOpen,
            &[
                "an effect without its undo",
                "an action after its undo",
                "an undo without its effect",
                "completed without an effect",
            ],
        ),
        (Broken::ResultDropped, &["an effect without its undo"]),
        (Broken::UndoOnUnknown, &["an undo without its effect", "an action after its undo"]),
    ];
    for (broken, violations) in expected {
        let found = explore(broken).expect_err("it was not caught");
        assert!(violations.contains(&found), "{broken:?}: {found}");
        println!("{broken:?}: {found}");
    }
}
