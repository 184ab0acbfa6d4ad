//! The whole chain in one thread, by seed: writers → outbox → relays → broker → consumers, with crashes, pauses, lost
//! confirmations, late copies, failing handlers and redrives in random order. What the crate decides without a database is
//! the crate's own code: the schedule of a relay, the queue by ordering key of relay and consumer, how far a partition is
//! handled, and what follows a failure. Outbox, broker, leases, receipts and dead letters are a model, written down by the
//! rules of `docs/messages.md`. Each of ten mistakes in the use of these parts must be seen. What is left, the statements
//! and the connections, is tested against real servers in `tests/it`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::schedule::Schedule;
use crate::consumer::OnDead;
use crate::consumer::failure::{AfterFailure, after_failure};
use crate::consumer::progress::Progress;
use crate::key_queue::KeyQueue;
use crate::message::Message;
use crate::tables::OutboxRow;

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
    /// A relay sends a message before the one of its key before it is confirmed.
    SendUnconfirmed,
    /// A relay publishes without looking at its lease.
    RelayWithoutFence,
    /// Receipts are removed before the last copy can come.
    WindowShorterThanRedelivery,
}

use Mistake::*;

const KEYS: usize = 2;
/// That of both keys: within a lane, numbers are in commit order.
const LANE: u32 = 3;
/// Messages in the memory of a relay: so few that the bounds are reached.
const HELD_MAX: usize = 4;
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

impl Mail {
    fn row(self, place: i64) -> OutboxRow {
        let message = Message::new("t", self.n.to_string()).with_ordering_key(key_of(self.key));
        OutboxRow { lane: LANE, position: place, message }
    }

    fn of(row: &OutboxRow) -> Self {
        let key = (0..KEYS).find(|key| row.message.ordering_key() == Some(key_of(*key)));
        let n = String::from_utf8_lossy(row.message.payload()).parse();
        Self { key: key.expect("one of ours"), n: n.expect("a number") }
    }
}

fn key_of(key: usize) -> &'static str {
    ["a", "b"][key]
}

struct Relay {
    /// One that was started again knows nothing of what it has sent.
    life: u64,
    lease_until: u64,
    schedule: Schedule,
}

impl Relay {
    fn new(life: u64) -> Self {
        Self { life, lease_until: 0, schedule: Schedule::new(HELD_MAX) }
    }
}

/// A message between a relay and the broker.
struct Sent {
    at: u64,
    relay: usize,
    /// The relay that waits for the confirmation, if it is still the same.
    life: Option<u64>,
    key: Arc<str>,
    row: OutboxRow,
}

/// A message that a consumer has read.
#[derive(Clone, Copy)]
struct Queued {
    position: i64,
    mail: Mail,
}

#[derive(Default)]
struct Worker {
    fence: u64,
    read: usize,
    progress: Progress,
    queue: KeyQueue<Queued>,
    running: Vec<(Arc<str>, Queued, Stage)>,
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
    start: Instant,
    has_faults: bool,
    now: u64,
    // The service.
    begun: Vec<(i64, usize)>,
    next_place: i64,
    committed: [usize; KEYS],
    outbox: BTreeMap<i64, Mail>,
    relays: [Relay; 2],
    lives: u64,
    relay_owner: Option<usize>,
    relay_until: u64,
    // The broker: what is on its way, and the log.
    on_the_way: Vec<Sent>,
    log: Vec<Mail>,
    // The database of the consumer.
    receipts: HashMap<Mail, u64>,
    effects: Vec<Mail>,
    tries: HashMap<Mail, u32>,
    position: i64,
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
            start: Instant::now(),
            has_faults,
            now: 0,
            begun: Vec::new(),
            next_place: 1,
            committed: [0; KEYS],
            outbox: BTreeMap::new(),
            relays: [Relay::new(0), Relay::new(1)],
            lives: 2,
            relay_owner: None,
            relay_until: 0,
            on_the_way: Vec::new(),
            log: Vec::new(),
            receipts: HashMap::new(),
            effects: Vec::new(),
            tries: HashMap::new(),
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

    fn clock(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
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
                && self.position == i64::try_from(self.log.len()).unwrap()
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
            if self.relay_owner == Some(me) {
                self.relay_until = self.now;
            }
            self.lives += 1;
            self.relays[me] = Relay::new(self.lives);
            return;
        }
        if self.relay_owner == Some(me) && self.now < self.relay_until {
            self.relay_until = self.now + self.lease();
            self.relays[me].lease_until = self.relay_until;
        } else if self.relay_owner.is_none() || self.now >= self.relay_until {
            self.relay_owner = Some(me);
            self.relay_until = self.now + self.lease();
            self.relays[me].lease_until = self.relay_until;
            self.relays[me].schedule.gain(LANE);
        }
        let is_mine = self.now < self.relays[me].lease_until && self.relay_owner == Some(me);
        if !is_mine && self.mistake == RelayWithoutFence {
            self.relays[me].schedule.gain(LANE);
        } else if !is_mine {
            return self.relays[me].schedule.lose(|_| true);
        }
        self.read_and_remove(me);
        let now = self.clock();
        while let Some((key, row)) = self.relays[me].schedule.take(now) {
            let late = if self.fault(8) { LATE_MAX } else { 4 };
            let at = self.now + self.random.below(late);
            let mut life = Some(self.relays[me].life);
            if self.mistake == SendUnconfirmed {
                self.relays[me].schedule.published(&key, &row);
                life = None;
            }
            self.on_the_way.push(Sent { at, relay: me, life, key, row });
        }
    }

    /// One look of a relay at the outbox.
    fn read_and_remove(&mut self, me: usize) {
        let now = self.clock();
        // Everything is read from the start again, now and then.
        let restarts = self.chance(10);
        let is_lost = self.fault(10);
        let schedule = &mut self.relays[me].schedule;
        if restarts {
            schedule.restart(LANE);
        }
        let places = schedule.take_to_remove();
        for (_, place) in &places {
            self.outbox.remove(place);
        }
        if is_lost {
            // It was removed, and the answer was lost.
            return schedule.not_removed(places);
        }
        let reads = schedule.reads(now);
        let mut rows = Vec::new();
        for (_, after) in reads.after {
            let behind = self.outbox.range(after + 1..).take(reads.per_lane.min(HELD_MAX));
            rows.extend(behind.map(|(place, mail)| mail.row(*place)));
        }
        schedule.removed(&places);
        schedule.read(rows);
    }

    /// The broker takes something in, and confirms it. The confirmation may be lost: then the relay sends it again, and a
    /// copy may still be on its way.
    fn arrive(&mut self) {
        let Some(at) = self.on_the_way.iter().position(|sent| sent.at <= self.now) else { return };
        let Sent { relay: me, life, key, row, .. } = self.on_the_way.remove(at);
        self.log.push(Mail::of(&row));
        if life != Some(self.relays[me].life) {
            return;
        }
        if !self.fault(6) {
            return self.relays[me].schedule.published(&key, &row);
        }
        let now = self.clock();
        let pause = |failures: u32| Duration::from_millis(5 * u64::from(failures));
        self.relays[me].schedule.failed(&key, &row, now, pause);
        let at = self.now + self.random.below(LATE_MAX);
        self.on_the_way.push(Sent { at, relay: me, life: None, key, row });
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
            self.position = self.workers[me].progress.position();
        } else if self.now >= self.owner_until {
            self.fence += 1;
            self.owner = Some(me);
            self.owner_until = self.now + self.lease();
            self.workers[me] = Worker {
                fence: self.fence,
                read: usize::try_from(self.position).unwrap(),
                progress: Progress::after(self.position),
                ..Worker::default()
            };
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
        worker.read += 1;
        let position = i64::try_from(worker.read).unwrap();
        worker.progress.read(position);
        if self.mistake == AckBeforeCommit {
            worker.progress.handled(position);
        }
        let running = worker.running.iter().find(|(_, queued, _)| queued.mail == mail);
        if self.mistake == AckOfARunningDuplicate
            && let Some((_, original, _)) = running
        {
            worker.progress.handled(position);
            worker.progress.handled(original.position);
            return;
        }
        worker.queue.push(key_of(mail.key), Queued { position, mail });
    }

    fn begin(&mut self, me: usize) {
        let now = self.clock();
        while let Some((key, queued)) = self.workers[me].queue.take(now) {
            self.workers[me].running.push((key, queued, Stage::Begun));
        }
    }

    /// The transaction of an effect: fence, receipt, sequence, handler, commit.
    fn finish(&mut self, me: usize) {
        let running = self.workers[me].running.len();
        if running == 0 {
            return;
        }
        let at = usize::try_from(self.random.below(running as u64)).unwrap();
        let (key, queued, stage) = self.workers[me].running.remove(at);
        let Queued { position, mail } = queued;
        let is_fenced_off = self.workers[me].fence != self.fence;
        let done = |chain: &mut Self| {
            chain.workers[me].queue.done(&key);
            chain.workers[me].progress.handled(position);
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
        if self.is_parked[mail.key] || self.is_draining[mail.key] {
            // Behind the dead letter; recorded by its receipt.
            self.parked[mail.key].push_back(mail);
            self.receipts.insert(mail, self.now);
            return done(self);
        }
        if self.fault(5) {
            let tries = self.tries.entry(mail).or_default();
            *tries += 1;
            if after_failure(false, *tries, TRIES, OnDead::Park) == AfterFailure::Bury {
                self.is_parked[mail.key] = true;
                self.parked[mail.key].push_back(mail);
                self.receipts.insert(mail, self.now);
                return done(self);
            }
            let until = self.clock() + Duration::from_millis(self.random.below(10));
            let queue = &mut self.workers[me].queue;
            return match self.mistake {
                NackOvertaken => queue.set_aside(&key, queued, until),
                _ => queue.failed(&key, queued, until),
            };
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
        self.workers[me].running.push((key, queued, Stage::Half));
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
    if std::env::var_os("ONCEWARD_LONG").is_some() { 500_000 } else { 5_000 }
}

#[test]
fn the_chain_has_one_effect_per_message_in_order_whatever_happens() {
    for seed in 0..seeds() {
        Chain::new(Nothing, seed).run().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn each_of_ten_mistakes_is_seen() {
    let mistakes = [
        AckBeforeCommit,
        ReceiptInAnotherTransaction,
        MarkBeforeHandle,
        OrderById,
        RedriveThatOvertakes,
        AckOfARunningDuplicate,
        NackOvertaken,
        SendUnconfirmed,
        RelayWithoutFence,
        WindowShorterThanRedelivery,
    ];
    for mistake in mistakes {
        let found = (0..seeds()).find_map(|seed| Some((seed, Chain::new(mistake, seed).run().err()?)));
        let (seed, wrong) = found.unwrap_or_else(|| panic!("{mistake:?} is not seen"));
        println!("{mistake:?}: seed {seed}: {wrong}");
    }
}

/// A small generator of random numbers, so that a failing run can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
