//! All interleavings of action, undo, crash and late arrival for a saga of two steps: every state that two drivers, the
//! network and the participants can reach is visited once, with the real [`decide`], and with undos one after the other
//! and in parallel. The participants know no keys, so that nothing but the receipts protects them; or they know keys, and
//! then an unknown outcome is tried again under the same key, and late copies are up to them.
//!
//! * A driver may crash at any point, and may have lost its saga to another one without knowing it.
//! * A request may arrive at any time after it was sent, also after its driver crashed or gave up waiting.
//! * A person may ask at any time that the saga be undone, and settles unknown outcomes by what really happened.
//!
//! Six broken variants must be caught: a search that cannot fail proves nothing.

use std::collections::HashSet;

use super::*;

const STEPS: usize = 2;
/// Drivers that are started: the first one, and those that take over from it.
const DRIVERS: usize = 3;
/// The same where there is more to visit: two are enough for a takeover and for a late copy.
const FEW_DRIVERS: usize = 2;
/// Copies of one request that are on their way: one, and one that is tried again.
const COPIES_MAX: u8 = 2;

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
    /// A participant that knows keys undoes an action and does not close its key.
    LeavesKeyOpen,
}

/// What is visited.
#[derive(Clone, Copy, Debug)]
struct Search {
    broken: Broken,
    order: UndoOrder,
    /// The participants know keys, and steps are declared `with_retry_unknown`.
    has_keys: bool,
    drivers_max: usize,
}

/// What a participant that knows keys has under the key of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Free,
    Done(Reply),
    Closed,
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

/// What a driver is doing about one step; `true` is the undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// Has seen that there is no receipt; only of a broken variant.
    Checked(bool),
    Claimed(bool),
    Sent(bool),
    Answered(bool, Reply),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Driver {
    /// About each step: several undos at a time, if they are in parallel. It decides when it does nothing.
    doing: [Doing; STEPS],
    has_crashed: bool,
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
    /// The keys of actions, and whether that of the undo is done; only of participants that know keys.
    keys: [(Key, bool); STEPS],
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
            keys: [(Key::Free, false); STEPS],
            abort: false,
            ended: None,
            drivers: vec![Driver::new()],
        }
    }

    fn slip(&mut self, step: usize, is_undo: bool) -> &mut Slip {
        if is_undo { &mut self.slips[step].1 } else { &mut self.slips[step].0 }
    }

    /// Everything that can happen next.
    fn next(&self, search: Search) -> Result<Vec<Self>, &'static str> {
        let mut nexts = Vec::new();
        if !self.abort && self.ended.is_none() {
            nexts.push(Self { abort: true, ..self.clone() });
        }
        // The lease of the saga ends: another driver takes over, whatever the last one is doing.
        if self.drivers.len() < search.drivers_max && self.ended.is_none() {
            let mut situation = self.clone();
            situation.drivers.push(Driver::new());
            nexts.push(situation);
        }
        for step in 0..STEPS {
            if search.has_keys {
                self.arrivals_with_keys(step, search.broken, &mut nexts)?;
            } else {
                self.arrivals(step, &mut nexts)?;
            }
            for is_undo in [false, true] {
                self.lapse_or_settle(step, is_undo, search.has_keys, &mut nexts);
            }
        }
        for at in 0..self.drivers.len() {
            if !self.drivers[at].has_crashed {
                let mut situation = self.clone();
                situation.drivers[at] = Driver { has_crashed: true, ..Driver::new() };
                nexts.push(situation);
                self.drive(at, search, &mut nexts)?;
            }
        }
        Ok(nexts)
    }

    /// The same as [`arrivals`](Self::arrivals) at a participant that knows keys: the first answer that it keeps is that of
    /// every copy, and an undo closes the key of its action. A failure before any effect is not kept, so that a copy which
    /// comes later may still act.
    fn arrivals_with_keys(&self, step: usize, broken: Broken, nexts: &mut Vec<Self>) -> Found {
        let (actions, undos, _) = self.sent[step];
        if actions > 0 {
            let mut situation = self.clone();
            situation.sent[step].0 -= 1;
            match self.keys[step].0 {
                Key::Done(reply) => situation.answer(step, false, reply, nexts),
                Key::Closed => situation.answer(step, false, Reply::Refused, nexts),
                Key::Free => {
                    situation.clone().answer(step, false, Reply::Failed, nexts);
                    for reply in [Reply::Succeeded, Reply::Refused, Reply::Failed] {
                        let mut situation = situation.clone();
                        situation.keys[step].0 = Key::Done(reply);
                        if reply != Reply::Refused {
                            if self.keys[step].1 || self.ended == Some(false) {
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
            }
        }
        if undos > 0 {
            let mut situation = self.clone();
            situation.sent[step].1 -= 1;
            if broken != Broken::LeavesKeyOpen && self.keys[step].0 == Key::Free {
                situation.keys[step].0 = Key::Closed;
            }
            situation.keys[step].1 = true;
            // It undoes what there is: nothing, if the action failed before its effect.
            situation.undone[step] = situation.effects[step];
            situation.answer(step, true, Reply::Succeeded, nexts);
        }
        Ok(())
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
            if self.drivers[at].doing[step] == Doing::Sent(is_undo) {
                let mut heard = self.clone();
                heard.drivers[at].doing[step] = Doing::Answered(is_undo, reply);
                nexts.push(heard);
            }
        }
        nexts.push(self);
    }

    /// What a crashed driver held becomes unknown; what is unknown is settled once nothing is on its way any more. With
    /// keys it is tried again instead.
    fn lapse_or_settle(&self, step: usize, is_undo: bool, has_keys: bool, nexts: &mut Vec<Self>) {
        let mut situation = self.clone();
        let (actions, undos, blind) = situation.sent[step];
        let (in_flight, has_happened) = if is_undo {
            (undos + blind, situation.undone[step])
        } else {
            (actions, situation.effects[step])
        };
        let slip = situation.slip(step, is_undo);
        match *slip {
            Slip::Held(driver) if self.drivers[driver].has_crashed => *slip = Slip::Unknown,
            Slip::Unknown if in_flight == 0 && !has_keys => {
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

    /// One move of a driver: of one of the things that it does, or the decision what to do next.
    fn drive(&self, at: usize, search: Search, nexts: &mut Vec<Self>) -> Found {
        if self.drivers[at].doing == [Doing::Nothing; STEPS] {
            return self.decide(at, search, nexts);
        }
        for step in 0..STEPS {
            self.perform(at, step, search.broken, nexts);
        }
        Ok(())
    }

    fn perform(&self, at: usize, step: usize, broken: Broken, nexts: &mut Vec<Self>) {
        let mut situation = self.clone();
        match self.drivers[at].doing[step] {
            Doing::Nothing => return,
            Doing::Checked(is_undo) => {
                *situation.slip(step, is_undo) = Slip::Held(at);
                situation.drivers[at].doing[step] = Doing::Claimed(is_undo);
            }
            Doing::Claimed(is_undo) => {
                let is_blind = situation.drivers[at].known[step].0 == Slip::Done(Reply::Succeeded)
                    && !situation.drivers[at].has_result[step];
                let sent = &mut situation.sent[step];
                let copies = match (is_undo, is_blind) {
                    (false, _) => &mut sent.0,
                    (true, false) => &mut sent.1,
                    (true, true) => &mut sent.2,
                };
                if *copies == COPIES_MAX {
                    return;
                }
                *copies += 1;
                situation.drivers[at].doing[step] = Doing::Sent(is_undo);
            }
            // It gives up waiting; the request may still arrive.
            Doing::Sent(is_undo) => {
                situation.drivers[at].doing[step] = Doing::Answered(is_undo, Reply::None);
            }
            Doing::Answered(is_undo, reply) => {
                let mine =
                    if broken == Broken::RegisteredAfter && !is_undo { Slip::Absent } else { Slip::Held(at) };
                let slip = situation.slip(step, is_undo);
                if *slip == mine {
                    *slip = if reply == Reply::None { Slip::Unknown } else { Slip::Done(reply) };
                }
                let now = *slip;
                let driver = &mut situation.drivers[at];
                driver.doing[step] = Doing::Nothing;
                driver.learn(step, is_undo, now);
                driver.has_result[step] |= !is_undo;
            }
        }
        nexts.push(situation);
    }

    fn decide(&self, at: usize, search: Search, nexts: &mut Vec<Self>) -> Found {
        let broken = search.broken;
        let mut situation = self.clone();
        let driver = &self.drivers[at];
        let units = driver.known.map(|(action, undo)| UnitProgress {
            kind: UnitKind::Undoable,
            action: progress(action, broken, search.has_keys),
            undo: progress(undo, Broken::No, search.has_keys),
        });
        let next = super::decide(&units, driver.knows_abort, search.order);
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
            Next::Begin(step) => situation.claim(at, step, false, search),
            Next::Undo(steps) => {
                for step in steps {
                    situation.claim(at, step, true, search);
                }
            }
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

    fn claim(&mut self, at: usize, step: usize, is_undo: bool, search: Search) {
        let broken = search.broken;
        let slip = self.slip(step, is_undo);
        let now = *slip;
        if now == Slip::Absent || (now == Slip::Unknown && search.has_keys) {
            self.drivers[at].doing[step] = match broken {
                Broken::CheckThenMark => Doing::Checked(is_undo),
                Broken::RegisteredAfter if !is_undo => Doing::Claimed(is_undo),
                _ => {
                    *slip = Slip::Held(at);
                    Doing::Claimed(is_undo)
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
            doing: [Doing::Nothing; STEPS],
            has_crashed: false,
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

fn progress(slip: Slip, broken: Broken, has_keys: bool) -> Progress {
    match slip {
        Slip::Absent => Progress::NotBegun,
        Slip::Held(_) => Progress::Running { lease: Duration::from_secs(1) },
        Slip::Done(Reply::Succeeded) => Progress::Succeeded,
        Slip::Done(Reply::Refused) => Progress::Refused,
        Slip::Done(Reply::Failed) => Progress::Failed,
        Slip::Unknown if broken == Broken::UndoOnUnknown => Progress::Failed,
        Slip::Unknown if has_keys => Progress::Waiting { due: Duration::ZERO, unknown: true },
        Slip::Done(Reply::None) | Slip::Unknown => Progress::Unknown,
        Slip::Closed => Progress::Closed,
    }
}

/// What a search has visited.
#[derive(Clone, Copy, Debug, Default)]
struct Visited {
    states: usize,
    completed: usize,
    undone: usize,
    /// States in which a driver waits for the undos of all steps.
    parallel: usize,
    /// States with a closed key and a copy of its action on its way.
    late: usize,
}

/// Visits every state. Gives the first violation, or what was visited.
fn explore(search: Search) -> Result<Visited, &'static str> {
    let (mut seen, mut open) = (HashSet::from([Situation::new()]), vec![Situation::new()]);
    let mut visited = Visited::default();
    while let Some(situation) = open.pop() {
        match situation.ended {
            Some(true) => visited.completed += 1,
            Some(false) => visited.undone += 1,
            None => {}
        }
        let awaits_all = |driver: &Driver| driver.doing == [Doing::Sent(true); STEPS];
        visited.parallel += usize::from(situation.drivers.iter().any(awaits_all));
        let is_late = |(key, sent): (&(Key, bool), &(u8, u8, u8))| key.0 == Key::Closed && sent.0 > 0;
        visited.late += usize::from(situation.keys.iter().zip(&situation.sent).any(is_late));
        for next in situation.next(search)? {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(Visited { states: seen.len(), ..visited })
}

fn visit(order: UndoOrder, has_keys: bool, drivers_max: usize) {
    let found = explore(Search { broken: Broken::No, order, has_keys, drivers_max }).unwrap();
    println!("{order:?}, keys: {has_keys}, {drivers_max} drivers: {found:?}");
    assert!(found.states > 10_000 && found.completed > 0 && found.undone > 0, "{found:?}");
    assert_eq!(found.parallel > 0, order == UndoOrder::Parallel, "{found:?}");
    assert_eq!(found.late > 0, has_keys, "{found:?}");
}

fn is_long() -> bool {
    std::env::var_os("ONCEWARD_LONG").is_some_and(|wanted| wanted == "1")
}

#[test]
fn no_interleaving_leaves_an_effect_without_its_undo() {
    visit(UndoOrder::Reverse, false, DRIVERS);
}

#[test]
fn none_does_if_undos_are_in_parallel() {
    visit(UndoOrder::Parallel, false, if is_long() { DRIVERS } else { FEW_DRIVERS });
}

#[test]
fn none_does_if_participants_know_keys_and_unknown_outcomes_are_tried_again() {
    visit(UndoOrder::Reverse, true, FEW_DRIVERS);
    // Two million states.
    if is_long() {
        visit(UndoOrder::Parallel, true, FEW_DRIVERS);
    }
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
        (Broken::LeavesKeyOpen, &["an action after its undo"]),
    ];
    for (broken, violations) in expected {
        for order in [UndoOrder::Reverse, UndoOrder::Parallel] {
            let has_keys = broken == Broken::LeavesKeyOpen;
            let drivers_max = if has_keys { FEW_DRIVERS } else { DRIVERS };
            let found =
                explore(Search { broken, order, has_keys, drivers_max }).expect_err("it was not caught");
            assert!(violations.contains(&found), "{broken:?}, {order:?}: {found}");
            println!("{broken:?}, {order:?}: {found}");
        }
    }
}
