//! Follows each record through the writes that the store saw, and checks what a restart has left of them.

use std::collections::BTreeMap;

use onceward::receipt::{Owner, Status};
use onceward::{Due, Id, Receipt};

use super::Violation;
use super::facts::Facts;
use super::transitions::Step;
use super::unknown_effects::UnknownEffects;
use crate::sim::history::{Event, EventKind, name};

pub(super) const FENCE: &str = "the fence only grows";
pub(super) const RESTART: &str = "nothing acknowledged is lost by a restart";
pub(super) const REOPENED: &str = "a restart ends the runs of the dead process, and no others";
pub(super) const LIFE: &str = "a receipt lives the life of a receipt";

pub(super) fn check(history: &[Event], facts: &Facts, violations: &mut Vec<Violation>) {
    let mut versions: BTreeMap<&Id, u64> = BTreeMap::new();
    let mut disk = Disk::default();
    let mut unknown_effects = UnknownEffects::default();
    for (event, Event { what, process, at_us }) in history.iter().enumerate() {
        match what {
            EventKind::Wrote { id, version, before, after, tx, sent_us } => {
                let highest = versions.entry(id).or_default();
                if *version <= *highest {
                    let detail = format!("{}: version {version} after {highest}", name(id));
                    violations.push(Violation { rule: FENCE, event, detail });
                }
                *highest = *version;
                disk.wrote(id, *version, after.as_deref(), *at_us);
                let (before, after) = (before.as_deref(), after.as_deref());
                let (at_us, sent_us, process) = (*at_us, *sent_us, *process);
                let step = Step { facts, event, at_us, sent_us, process, id, before, after, tx: *tx };
                for checked in [step.check(), unknown_effects.check_write(&step)] {
                    if let Err((rule, detail)) = checked {
                        violations.push(Violation { rule, event, detail: format!("{}: {detail}", name(id)) });
                    }
                }
            }
            EventKind::Unreadable { id } => {
                let detail = format!("{}: bytes that are no receipt", name(id));
                violations.push(Violation { rule: LIFE, event, detail });
            }
            EventKind::Acknowledged { id, version } => disk.acknowledged(id, *version),
            EventKind::Reopened { kept } => {
                for (rule, detail) in disk.reopened(kept, *at_us) {
                    violations.push(Violation { rule, event, detail });
                }
            }
            _ => {}
        }
    }
}

/// What a restart may lose: writes that nobody was told of.
#[derive(Default)]
struct Disk<'a> {
    writes: BTreeMap<&'a Id, Writes>,
}

/// Every write of an id since the last restart, in order.
#[derive(Default)]
struct Writes {
    /// The version of each, and when the record that was there afterwards fell due, if there was one.
    all: Vec<(u64, Option<u64>)>,
    /// How many of them, from the first one on, are older than something acknowledged or it themselves.
    acknowledged: usize,
}

fn due_us(receipt: &Receipt, at_us: u64) -> u64 {
    match receipt.due {
        Due::Never => u64::MAX,
        Due::In(left) => at_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX)),
        Due::Over(ago) => at_us.saturating_sub(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX)),
    }
}

impl<'a> Disk<'a> {
    fn wrote(&mut self, id: &'a Id, version: u64, after: Option<&Receipt>, at_us: u64) {
        let due_us = after.map(|after| due_us(after, at_us));
        self.writes.entry(id).or_default().all.push((version, due_us));
    }

    fn acknowledged(&mut self, id: &'a Id, version: u64) {
        let writes = self.writes.entry(id).or_default();
        if let Some(at) = writes.all.iter().position(|(written, _)| *written == version) {
            writes.acknowledged = writes.acknowledged.max(at + 1);
        }
    }

    /// What is missing, and whose lease is not what it should be. Starts afresh from what is there.
    fn reopened(&mut self, kept: &'a [(Id, Box<Receipt>)], at_us: u64) -> Vec<(&'static str, String)> {
        let found: BTreeMap<&Id, u64> = kept.iter().map(|(id, receipt)| (id, receipt.version.0)).collect();
        let mut wrong = Vec::new();
        for (id, Writes { all, acknowledged }) in &self.writes {
            let Some(first) = acknowledged.checked_sub(1) else { continue };
            let fits = all[first..].iter().any(|(version, there)| match found.get(id) {
                Some(found) => there.is_some() && found == version,
                None => there.is_none(),
            });
            if !fits {
                let (found, lost) = (found.get(id), all[first].0);
                let detail = format!("{}: {lost} was acknowledged, {found:?} is there", name(id));
                wrong.push((RESTART, detail));
            }
        }
        for (id, receipt) in kept {
            let Status::Held(held) = &receipt.status else { continue };
            let written = self.writes.get(id).and_then(|writes| {
                writes.all.iter().find(|(version, _)| *version == receipt.version.0).and_then(|(_, due)| *due)
            });
            let over = receipt.due.is_over();
            match held.owner {
                Owner::Run if !over => {
                    wrong
                        .push((REOPENED, format!("{}: a run of the dead process keeps its lease", name(id))));
                }
                Owner::Ticket if over && written.is_some_and(|due_us| due_us > at_us) => {
                    let detail = format!("{}: a claim made for somebody else lost its lease", name(id));
                    wrong.push((REOPENED, detail));
                }
                _ => {}
            }
        }
        self.writes.clear();
        for (id, receipt) in kept {
            let all = vec![(receipt.version.0, Some(due_us(receipt, at_us)))];
            self.writes.insert(id, Writes { all, acknowledged: 1 });
        }
        wrong
    }
}
