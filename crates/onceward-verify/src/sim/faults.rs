//! The faults between a process and the store, and how often each occurs.

use crate::random::Random;

/// One thing that can go wrong with one call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The call fails and nothing happened; the caller knows.
    CleanFailure,
    /// The write never arrives; the caller only knows that there is no answer.
    WriteLost,
    /// The write happens, its answer is lost.
    ReplyLost,
    /// The caller has given up; then the write happens.
    WriteLate,
    /// The write happens, its answer takes longer than leases last.
    ReplyLate,
    /// The batch happens in two halves, the second one first.
    Halves,
    /// Half of the batch happens, then the call fails.
    HalfLost,
    /// The call takes a hundred times as long.
    Slow,
    /// A read fails.
    ReadFailure,
    /// The process dies.
    Crash,
    /// The process does nothing for a while.
    Pause,
    /// The process's clock moves ahead.
    Jump,
    /// The store cannot be reached for a while: longer than leases last, or shorter.
    Outage,
    /// A transaction has the record, so a write to it fails for that record alone.
    Locked,
    /// The database undoes a transaction in favour of another one.
    Undone,
}

impl Fault {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 15] = [
        Self::CleanFailure,
        Self::WriteLost,
        Self::ReplyLost,
        Self::WriteLate,
        Self::ReplyLate,
        Self::Halves,
        Self::HalfLost,
        Self::Slow,
        Self::ReadFailure,
        Self::Crash,
        Self::Pause,
        Self::Jump,
        Self::Outage,
        Self::Locked,
        Self::Undone,
    ];

    /// What it is called in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::CleanFailure => "clean failure",
            Self::WriteLost => "write lost",
            Self::ReplyLost => "reply lost",
            Self::WriteLate => "write late",
            Self::ReplyLate => "reply late",
            Self::Halves => "batch in halves",
            Self::HalfLost => "half lost",
            Self::Slow => "slow call",
            Self::ReadFailure => "read failure",
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::Jump => "clock jump",
            Self::Outage => "store away",
            Self::Locked => "record locked",
            Self::Undone => "undone",
        }
    }

    const OF_WRITES: [(u32, Self); 8] = [
        (3, Self::CleanFailure),
        (3, Self::WriteLost),
        (4, Self::ReplyLost),
        (3, Self::WriteLate),
        (2, Self::ReplyLate),
        (2, Self::Halves),
        (2, Self::HalfLost),
        (2, Self::Slow),
    ];

    const OF_COMMITS: [(u32, Self); 7] = [
        (2, Self::CleanFailure),
        (3, Self::WriteLost),
        (4, Self::ReplyLost),
        (3, Self::WriteLate),
        (2, Self::ReplyLate),
        (3, Self::Undone),
        (2, Self::Slow),
    ];
}

/// How often something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultRate {
    /// Nothing is ever faulty: whatever goes wrong here is the engine's own doing.
    None,
    /// A fault now and then.
    Low,
    /// A fault every few calls.
    High,
}

impl FaultRate {
    fn per_thousand(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Low => 25,
            Self::High => 150,
        }
    }

    /// What goes wrong with the next write.
    pub fn for_write(self, random: &mut Random) -> Option<Fault> {
        random.chance(self.per_thousand()).then(|| random.weighed(&Fault::OF_WRITES))
    }

    /// What goes wrong with the next read.
    pub fn for_read(self, random: &mut Random) -> Option<Fault> {
        random
            .chance(self.per_thousand())
            .then(|| random.weighed(&[(2, Fault::ReadFailure), (1, Fault::Slow), (1, Fault::ReplyLate)]))
    }

    /// What goes wrong when a transaction begins.
    pub fn for_begin(self, random: &mut Random) -> Option<Fault> {
        random
            .chance(self.per_thousand())
            .then(|| random.weighed(&[(2, Fault::CleanFailure), (1, Fault::Undone), (1, Fault::Slow)]))
    }

    /// What goes wrong when one commits. Half as often again: it is the moment that matters.
    pub fn for_commit(self, random: &mut Random) -> Option<Fault> {
        random.chance(self.per_thousand() * 3 / 2).then(|| random.weighed(&Fault::OF_COMMITS))
    }

    /// What goes wrong with a write while the store cannot be reached.
    pub fn for_write_away(random: &mut Random) -> Option<Fault> {
        Some(random.weighed(&[(2, Fault::CleanFailure), (1, Fault::WriteLost)]))
    }

    /// What goes wrong with a read then.
    pub fn for_read_away(_: &mut Random) -> Option<Fault> {
        Some(Fault::ReadFailure)
    }
}
