//! The whole chain as a model, by seed: writers → outbox → relays → broker → consumers, with crashes, pauses, lost
//! confirmations, late copies, failing handlers and redrives in random order. The rules are those of `docs/messages.md`,
//! written down a second time and without any of the crate's code: it is about the design, and each of nine mistakes in it
//! must be seen. The code itself is tested against real servers, in the other modules.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::support::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    Nothing,
    /// The position moves on when a message is read.
    AckBeforeCommit,
    /// The effect commits, then the receipt.
    ReceiptInAnotherTransaction,
    /// The receipt commits, then the effect.
    MarkBeforeHandle,
    /// Numbers are taken at the insert, without a lock until the commit.
    OrderById,
    /// A redrive clears the sequence first.
    RedriveThatOvertakes,
    /// A copy of a message that is being handled counts as handled, and takes the original with it.
    AckOfARunningDuplicate,
    /// A message that failed goes behind the others of its key.
    NackOvertaken,
    /// A relay publishes without looking at its lease.
    RelayWithoutFence,
    /// Receipts are removed before the last copy can come.
    WindowShorterThanRedelivery,
}

use Mistake::*;

const KEYS: usize = 2;
const PER_KEY: usize = 5;
const TRIES: u32 = 2;
/// Without faults nothing ever stands still for that long.
const LEASE: u64 = 12;
/// A copy is never later than this, and receipts are kept for longer.
const LATE_MAX: u64 = 60;
const STEPS_MAX: u64 = 6_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Mail {
    key: usize,
    /// The number of the commit within its key: the order that must hold at the effects.
    n: usize,
}

#[derive(Default)]
struct Relay {
    lease_until: u64,
    cursor: usize,
    queues: [VecDeque<(usize, Mail)>; KEYS],
    /// What was sent and not confirmed, of each key.
    in_flight: [Option<(usize, Mail)>; KEYS],
}

#[derive(Default)]
struct Worker {
    fence: u64,
    read: usize,
    queues: [VecDeque<(usize, Mail)>; KEYS],
    running: [Option<(usize, Mail, Stage)>; KEYS],
    open: BTreeSet<usize>,
    tries: HashMap<Mail, u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    /// Half of what should be one commit is committed.
    Half,
}

struct Chain {
    mistake: Mistake,
    random: Random,
    has_faults: bool,
    now: u64,
    // The service.
    begun: Vec<(usize, usize)>,
    next_place: usize,
    committed: [usize; KEYS],
    outbox: BTreeMap<usize, Mail>,
    relays: [Relay; 2],
    relay_owner: Option<usize>,
    relay_until: u64,
    // The broker: what is on its way, and the log.
    on_the_way: Vec<(u64, usize, usize, Mail)>,
    log: Vec<Mail>,
    // The database of the consumer.
    receipts: HashMap<Mail, u64>,
    effects: Vec<Mail>,
    position: usize,
    owner: Option<usize>,
    owner_until: u64,
    fence: u64,
    parked: [VecDeque<Mail>; KEYS],
    is_parked: [bool; KEYS],
    is_draining: [bool; KEYS],
    /// Of a redrive that has cleared the sequence first.
    overtaken: [VecDeque<Mail>; KEYS],
    workers: [Worker; 2],
}

impl Chain {
    fn new(mistake: Mistake, seed: u64) -> Self {
        let mut random = Random(seed);
        let has_faults = random.below(4) > 0;
        Self {
            mistake,
            random,
            has_faults,
            now: 0,
            begun: Vec::new(),
            next_place: 1,
            committed: [0; KEYS],
            outbox: BTreeMap::new(),
            relays: Default::default(),
            relay_owner: None,
            relay_until: 0,
            on_the_way: Vec::new(),
            log: Vec::new(),
            receipts: HashMap::new(),
            effects: Vec::new(),
            position: 0,
            owner: None,
            owner_until: 0,
            fence: 0,
            parked: Default::default(),
            is_parked: [false; KEYS],
            is_draining: [false; KEYS],
            overtaken: Default::default(),
            workers: Default::default(),
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn fault(&mut self, one_in: u64) -> bool {
        self.has_faults && self.chance(one_in)
    }

    fn lease(&self) -> u64 {
        if self.has_faults { LEASE } else { STEPS_MAX }
    }

    /// Runs to the end, and returns what is wrong.
    fn run(mut self) -> Result<(), String> {
        let all = KEYS * PER_KEY;
        while self.now < STEPS_MAX {
            self.now += 1;
            match self.random.below(12) {
                0 => self.write(),
                1..=3 => {
                    let relay = usize::try_from(self.random.below(2)).unwrap();
                    self.relay(relay);
                }
                4 | 5 => self.arrive(),
                6 => self.redrive(),
                _ => {
                    let worker = usize::try_from(self.random.below(2)).unwrap();
                    self.work(worker);
                }
            }
            let window = if self.mistake == WindowShorterThanRedelivery { LATE_MAX / 6 } else { u64::MAX };
            let now = self.now;
            self.receipts.retain(|_, at| now - *at < window);
            self.check_so_far()?;
            let is_over = self.committed.iter().sum::<usize>() == all && self.effects.len() == all;
            if is_over
                && self.outbox.is_empty()
                && self.on_the_way.is_empty()
                && self.position == self.log.len()
            {
                break;
            }
        }
        if self.effects.len() < all {
            return Err(format!("{} of {all} effects", self.effects.len()));
        }
        let copies = self.log.len() - all;
        if !self.has_faults && copies > 0 {
            return Err(format!("{copies} copies, and nothing had failed"));
        }
        Ok(())
    }

    fn check_so_far(&self) -> Result<(), String> {
        let mut next = [1; KEYS];
        for mail in &self.effects {
            if mail.n != next[mail.key] {
                return Err(format!(
                    "{mail:?} has its effect where {} is due: {:?}",
                    next[mail.key], self.effects
                ));
            }
            next[mail.key] += 1;
        }
        Ok(())
    }

    /// A transaction of the service begins, or commits.
    fn write(&mut self) {
        let is_locked = self.mistake != OrderById && !self.begun.is_empty();
        if self.begun.is_empty() || (!is_locked && self.begun.len() < 3 && self.chance(2)) {
            let key = usize::try_from(self.random.below(KEYS as u64)).unwrap();
            let under_way = self.begun.iter().filter(|(_, other)| *other == key).count();
            if self.committed[key] + under_way < PER_KEY {
                self.begun.push((self.next_place, key));
                self.next_place += 1;
            }
            return;
        }
        let at = usize::try_from(self.random.below(self.begun.len() as u64)).unwrap();
        let (place, key) = self.begun.remove(at);
        if self.fault(6) {
            return; // rolled back
        }
        self.committed[key] += 1;
        self.outbox.insert(place, Mail { key, n: self.committed[key] });
    }

    fn relay(&mut self, me: usize) {
        // A crash, or a pause during which everything of it stands still.
        if self.fault(60) {
            let cut_off = self.now;
            if self.relay_owner == Some(me) {
                self.relay_until = cut_off;
            }
            self.relays[me] = Relay::default();
            return;
        }
        if self.relay_owner == Some(me) && self.now < self.relay_until {
            self.relay_until = self.now + self.lease();
            self.relays[me].lease_until = self.relay_until;
        } else if self.relay_owner.is_none() || self.now >= self.relay_until {
            self.relay_owner = Some(me);
            self.relay_until = self.now + self.lease();
            self.relays[me] = Relay { lease_until: self.relay_until, ..Relay::default() };
        }
        let is_mine = self.now < self.relays[me].lease_until && self.relay_owner == Some(me);
        if !is_mine && self.mistake != RelayWithoutFence {
            return;
        }
        let relay = &mut self.relays[me];
        for (place, mail) in self.outbox.range(relay.cursor + 1..) {
            relay.queues[mail.key].push_back((*place, *mail));
            relay.cursor = *place;
        }
        for key in 0..KEYS {
            if self.relays[me].in_flight[key].is_none()
                && let Some((place, mail)) = self.relays[me].queues[key].pop_front()
            {
                self.relays[me].in_flight[key] = Some((place, mail));
                let late = if self.fault(8) { LATE_MAX } else { 4 };
                let at = self.now + self.random.below(late);
                self.on_the_way.push((at, me, place, mail));
            }
        }
    }

    /// The broker takes something in, and confirms it; the confirmation may be lost, and then it is sent again.
    fn arrive(&mut self) {
        let Some(at) = self.on_the_way.iter().position(|(at, ..)| *at <= self.now) else { return };
        let (_, me, place, mail) = self.on_the_way.remove(at);
        self.log.push(mail);
        let is_awaited = self.relays[me].in_flight[mail.key] == Some((place, mail));
        if !is_awaited {
            return;
        }
        if self.fault(6) {
            let late = self.now + self.random.below(LATE_MAX);
            self.on_the_way.push((late, me, place, mail));
            return;
        }
        self.relays[me].in_flight[mail.key] = None;
        self.outbox.remove(&place);
    }

    fn work(&mut self, me: usize) {
        if self.fault(50) {
            // A crash. Its lease ends by itself.
            self.workers[me] = Worker::default();
            return;
        }
        let owns = self.owner == Some(me) && self.workers[me].fence == self.fence;
        if owns && self.now < self.owner_until && !self.fault(40) {
            self.owner_until = self.now + self.lease();
            let worker = &self.workers[me];
            self.position = worker.open.first().copied().unwrap_or(worker.read).max(self.position);
        } else if self.now >= self.owner_until {
            self.fence += 1;
            self.owner = Some(me);
            self.owner_until = self.now + self.lease();
            self.workers[me] = Worker { fence: self.fence, read: self.position, ..Worker::default() };
        }
        if self.workers[me].fence == 0 {
            return;
        }
        match self.random.below(3) {
            0 => self.read(me),
            1 => self.begin(me),
            _ => self.finish(me),
        }
    }

    fn read(&mut self, me: usize) {
        let worker = &mut self.workers[me];
        let Some(mail) = self.log.get(worker.read).copied() else { return };
        let at = worker.read;
        worker.read += 1;
        if self.mistake != AckBeforeCommit {
            worker.open.insert(at);
        }
        let running = worker.running[mail.key].filter(|(_, other, _)| *other == mail);
        if self.mistake == AckOfARunningDuplicate
            && let Some((original, ..)) = running
        {
            worker.open.remove(&at);
            worker.open.remove(&original);
            return;
        }
        worker.queues[mail.key].push_back((at, mail));
    }

    fn begin(&mut self, me: usize) {
        for key in 0..KEYS {
            if self.workers[me].running[key].is_none()
                && let Some((at, mail)) = self.workers[me].queues[key].pop_front()
            {
                self.workers[me].running[key] = Some((at, mail, Stage::Begun));
            }
        }
    }

    /// The transaction of an effect: fence, receipt, sequence, handler, commit.
    fn finish(&mut self, me: usize) {
        let key = usize::try_from(self.random.below(KEYS as u64)).unwrap();
        let Some((at, mail, stage)) = self.workers[me].running[key] else { return };
        let is_fenced_off = self.workers[me].fence != self.fence;
        let done = |chain: &mut Self| {
            chain.workers[me].running[key] = None;
            chain.workers[me].open.remove(&at);
        };
        if is_fenced_off {
            return done(self);
        }
        if stage == Stage::Half {
            match self.mistake {
                MarkBeforeHandle => self.effects.push(mail),
                _ => drop(self.receipts.insert(mail, self.now)),
            }
            return done(self);
        }
        if self.receipts.contains_key(&mail) {
            return done(self);
        }
        if self.is_parked[key] || self.is_draining[key] {
            // Behind the dead letter; recorded by its receipt.
            self.parked[key].push_back(mail);
            self.receipts.insert(mail, self.now);
            return done(self);
        }
        if self.fault(5) {
            let tries = self.workers[me].tries.entry(mail).or_default();
            *tries += 1;
            if *tries >= TRIES {
                self.is_parked[key] = true;
                self.parked[key].push_back(mail);
                self.receipts.insert(mail, self.now);
                return done(self);
            }
            self.workers[me].running[key] = None;
            match self.mistake {
                NackOvertaken => self.workers[me].queues[key].push_back((at, mail)),
                _ => self.workers[me].queues[key].push_front((at, mail)),
            }
            return;
        }
        match self.mistake {
            MarkBeforeHandle => drop(self.receipts.insert(mail, self.now)),
            ReceiptInAnotherTransaction => self.effects.push(mail),
            _ => {
                self.effects.push(mail);
                self.receipts.insert(mail, self.now);
                return done(self);
            }
        }
        self.workers[me].running[key] = Some((at, mail, Stage::Half));
    }

    /// One step of an operator's redrive: clear → parked → draining → clear.
    fn redrive(&mut self) {
        for key in 0..KEYS {
            if let Some(mail) = self.overtaken[key].pop_front() {
                self.effects.push(mail);
            }
            if self.is_parked[key] {
                (self.is_parked[key], self.is_draining[key]) = (false, true);
                if self.mistake == RedriveThatOvertakes {
                    self.is_draining[key] = false;
                    self.overtaken[key] = std::mem::take(&mut self.parked[key]);
                }
            } else if self.is_draining[key] {
                if self.fault(4) {
                    // It fails again: parked again, with the rest behind it.
                    (self.is_parked[key], self.is_draining[key]) = (true, false);
                } else if let Some(mail) = self.parked[key].pop_front() {
                    self.effects.push(mail);
                    // Clear in the transaction of the last one.
                    self.is_draining[key] = !self.parked[key].is_empty();
                }
            }
        }
    }
}

fn seeds() -> u64 {
    if std::env::var_os("ONCEWARD_LONG").is_some() { 2_000_000 } else { 5_000 }
}

#[test]
fn the_chain_has_one_effect_per_message_in_order_whatever_happens() {
    for seed in 0..seeds() {
        Chain::new(Nothing, seed).run().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn each_of_nine_mistakes_is_seen() {
    let mistakes = [
        AckBeforeCommit,
        ReceiptInAnotherTransaction,
        MarkBeforeHandle,
        OrderById,
        RedriveThatOvertakes,
        AckOfARunningDuplicate,
        NackOvertaken,
        RelayWithoutFence,
        WindowShorterThanRedelivery,
    ];
    for mistake in mistakes {
        let found = (0..seeds()).find_map(|seed| Some((seed, Chain::new(mistake, seed).run().err()?)));
        let (seed, wrong) = found.unwrap_or_else(|| panic!("{mistake:?} is not seen"));
        println!("{mistake:?}: seed {seed}: {wrong}");
    }
}
