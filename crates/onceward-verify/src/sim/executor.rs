//! A single-threaded executor with virtual time for all processes of a simulation. The seed decides which ready task
//! is polled next, so the same seed gives the same schedule.
//!
//! A task belongs to a process. A crash drops all tasks of a process at the await that they have reached; a pause
//! keeps them from being polled; a jump moves the process's clock ahead. Process 0 is the outside (the
//! store, the nemesis), and has no such faults.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use onceward::Task;

use crate::random::Random;

/// One life of one process: after a crash the same number comes back with the next life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Which one; 0 is the outside.
    pub number: usize,
    /// How often it has been started before.
    pub life: u32,
}

/// The outside: never crashes, never pauses.
pub const OUTSIDE: Process = Process { number: 0, life: 0 };

/// What one poll costs, at most. Time passes while work is done, so that nothing is ever simultaneous.
const POLL_US_MAX: u64 = 20;

/// The executor of one simulation.
pub struct Executor {
    core: Mutex<Core>,
    woken: Arc<Woken>,
}

type Woken = Mutex<Vec<TaskKey>>;

/// A place for a task, and which of its successive tenants is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaskKey {
    place: usize,
    tenant: u64,
}

struct Core {
    now_us: u64,
    random: Random,
    tasks: Vec<Option<Tenant>>,
    free: Vec<usize>,
    ready: Vec<TaskKey>,
    lanes: Vec<Lane>,
    /// Counts tasks and timers, so that each has a number of its own.
    count: u64,
    polls: u64,
}

struct Tenant {
    key: TaskKey,
    process: Process,
    /// Absent while it is being polled.
    task: Option<Task>,
    waker: Arc<TaskWaker>,
}

/// What there is to know of one process.
#[derive(Default)]
struct Lane {
    life: u32,
    dead: bool,
    /// How far its clock is ahead.
    ahead_us: u64,
    paused_until_us: u64,
    /// Tasks that became ready during a pause.
    parked: Vec<TaskKey>,
    /// By the process's own clock.
    timers: BTreeMap<(u64, u64), Waker>,
}

struct TaskWaker {
    key: TaskKey,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.woken).push(self.key);
        }
    }
}

impl Executor {
    /// An executor with this many processes besides the outside, whose clocks are nowhere near each other.
    pub fn new(seed: u64, processes: usize) -> Arc<Self> {
        let mut random = Random::new(seed);
        let lanes = (0..=processes)
            .map(|number| Lane {
                ahead_us: if number == 0 { 0 } else { random.between(0, 10_000_000_000) },
                ..Lane::default()
            })
            .collect();
        let core = Core {
            now_us: 0,
            random,
            tasks: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            lanes,
            count: 0,
            polls: 0,
        };
        Arc::new(Self { core: Mutex::new(core), woken: Arc::default() })
    }

    /// True time, which no process knows.
    pub fn now_us(&self) -> u64 {
        lock(&self.core).now_us
    }

    /// How many polls there were.
    pub fn polls(&self) -> u64 {
        lock(&self.core).polls
    }

    /// Time by a process's own clock.
    pub fn clock(&self, process: Process) -> Duration {
        let core = lock(&self.core);
        Duration::from_micros(core.now_us + core.lanes[process.number].ahead_us)
    }

    /// Draws from the simulation's random numbers.
    pub fn draw<T>(&self, how: impl FnOnce(&mut Random) -> T) -> T {
        how(&mut lock(&self.core).random)
    }

    /// Returns whether this very life of the process still runs.
    pub fn is_alive(&self, process: Process) -> bool {
        lock(&self.core).is_alive(process)
    }

    /// The life that a process is in now, if it runs.
    pub fn life(&self, number: usize) -> Option<Process> {
        let core = lock(&self.core);
        let lane = &core.lanes[number];
        (!lane.dead).then_some(Process { number, life: lane.life })
    }

    /// Starts a task in a process; in a dead one, it is dropped.
    pub fn spawn(&self, process: Process, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(process, Box::pin(task));
    }

    /// Starts a task in a process; in a dead one, it is dropped.
    pub fn spawn_boxed(&self, process: Process, task: Task) {
        let mut core = lock(&self.core);
        if !core.is_alive(process) {
            // Its drop may come back here.
            drop(core);
            return drop(task);
        }
        let place = core.free.pop().unwrap_or_else(|| {
            core.tasks.push(None);
            core.tasks.len() - 1
        });
        core.count += 1;
        let key = TaskKey { place, tenant: core.count };
        let waker = TaskWaker { key, queued: AtomicBool::new(true), woken: Arc::clone(&self.woken) };
        core.tasks[place] = Some(Tenant { key, process, task: Some(task), waker: Arc::new(waker) });
        core.ready.push(key);
    }

    /// Is ready after `duration` by the process's clock; never, if the process dies.
    pub fn sleep(self: &Arc<Self>, process: Process, duration: Duration) -> Sleep {
        let ends_us = micros(self.clock(process)).saturating_add(micros(duration));
        Sleep { executor: Arc::clone(self), process, ends_us, timer: None }
    }

    /// Ends a process: all its tasks are dropped where they are.
    pub fn crash(&self, number: usize) {
        let mut core = lock(&self.core);
        core.lanes[number].dead = true;
        let dropped = core.clear(number);
        drop(core);
        // Outside of the lock, because what they do when dropped may come back here. It must not matter:
        // the process is dead already.
        drop(dropped);
    }

    /// Starts a dead process again, in its next life.
    pub fn revive(&self, number: usize) -> Process {
        let mut core = lock(&self.core);
        let lane = &mut core.lanes[number];
        assert!(lane.dead, "only a dead process can be started again");
        *lane = Lane { life: lane.life + 1, ahead_us: lane.ahead_us, ..Lane::default() };
        Process { number, life: lane.life }
    }

    /// Keeps a process from doing anything for a while. Its clock runs on.
    pub fn pause(&self, number: usize, duration: Duration) {
        let mut core = lock(&self.core);
        core.lanes[number].paused_until_us = core.now_us + micros(duration);
    }

    /// Moves a process's clock ahead. Never back: it is a monotonic one.
    pub fn jump(&self, number: usize, ahead: Duration) {
        lock(&self.core).lanes[number].ahead_us += micros(ahead);
    }

    /// Runs until `done` says so, or nothing is left to do, or the polls are used up.
    pub fn run(&self, polls_max: u64, done: impl Fn() -> bool) {
        while !done() {
            let Some(key) = self.next() else { return };
            let Some((mut task, waker)) = self.take(key) else { continue };
            let poll = task.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)));
            self.put_back(key, task, poll);
            if self.polls() >= polls_max {
                return;
            }
        }
    }

    /// Drops everything that is left, so that nothing keeps anything alive.
    pub fn clear(&self) {
        let mut core = lock(&self.core);
        let mut dropped = Vec::new();
        for number in 0..core.lanes.len() {
            core.lanes[number].dead = true;
            dropped.push(core.clear(number));
        }
        drop(core);
        drop(dropped);
    }

    /// The next task to poll; time moves on to the next timer if there is none.
    fn next(&self) -> Option<TaskKey> {
        let mut core = lock(&self.core);
        loop {
            for waker in core.fire() {
                waker.wake();
            }
            let woken = std::mem::take(&mut *lock(&self.woken));
            core.ready.extend(woken);
            while !core.ready.is_empty() {
                let Core { random, ready, .. } = &mut *core;
                let key = ready.swap_remove(random.below(ready.len()));
                if !core.park(key) {
                    return Some(key);
                }
            }
            core.now_us = core.next_event_us()?.max(core.now_us);
        }
    }

    fn take(&self, key: TaskKey) -> Option<(Task, Arc<TaskWaker>)> {
        let mut core = lock(&self.core);
        core.polls += 1;
        core.now_us += core.random.between(1, POLL_US_MAX);
        let tenant = core.tasks[key.place].as_mut().filter(|tenant| tenant.key == key)?;
        tenant.waker.queued.store(false, Ordering::Relaxed);
        Some((tenant.task.take()?, Arc::clone(&tenant.waker)))
    }

    fn put_back(&self, key: TaskKey, task: Task, poll: Poll<()>) {
        let mut core = lock(&self.core);
        // It may have been ended by a crash while it was polled.
        let Some(tenant) = core.tasks[key.place].as_mut().filter(|tenant| tenant.key == key) else {
            drop(core);
            return drop(task);
        };
        match poll {
            Poll::Pending => tenant.task = Some(task),
            Poll::Ready(()) => {
                core.tasks[key.place] = None;
                core.free.push(key.place);
                drop(core);
                drop(task);
            }
        }
    }
}

impl Core {
    fn is_alive(&self, process: Process) -> bool {
        let lane = &self.lanes[process.number];
        !lane.dead && lane.life == process.life
    }

    /// Takes all that a process has.
    fn clear(&mut self, number: usize) -> (Vec<Task>, Lane) {
        let mut dropped = Vec::new();
        for (place, tenant) in self.tasks.iter_mut().enumerate() {
            if tenant.as_ref().is_some_and(|tenant| tenant.process.number == number) {
                dropped.extend(tenant.take().and_then(|tenant| tenant.task));
                self.free.push(place);
            }
        }
        let lane = &mut self.lanes[number];
        let left = Lane { life: lane.life, dead: lane.dead, ahead_us: lane.ahead_us, ..Lane::default() };
        (dropped, std::mem::replace(lane, left))
    }

    /// Sets a task aside if its process is paused.
    fn park(&mut self, key: TaskKey) -> bool {
        let Some(tenant) = self.tasks[key.place].as_ref().filter(|tenant| tenant.key == key) else {
            return false;
        };
        let lane = &mut self.lanes[tenant.process.number];
        let paused = lane.paused_until_us > self.now_us;
        if paused {
            lane.parked.push(key);
        }
        paused
    }

    /// The timers whose time has come, and the tasks whose pause is over.
    fn fire(&mut self) -> Vec<Waker> {
        let mut fired = Vec::new();
        for lane in &mut self.lanes {
            if lane.paused_until_us <= self.now_us {
                self.ready.append(&mut lane.parked);
            }
            while let Some(first) = lane.timers.first_entry()
                && first.key().0 <= self.now_us + lane.ahead_us
            {
                fired.push(first.remove());
            }
        }
        fired
    }

    fn next_event_us(&self) -> Option<u64> {
        let of_lane = |lane: &Lane| {
            let timer = lane.timers.first_key_value().map(|((at, _), _)| at.saturating_sub(lane.ahead_us));
            let resume = (!lane.parked.is_empty()).then_some(lane.paused_until_us);
            timer.into_iter().chain(resume).min()
        };
        self.lanes.iter().filter_map(of_lane).min()
    }
}

/// A pause of one task, by its process's clock.
pub struct Sleep {
    executor: Arc<Executor>,
    process: Process,
    ends_us: u64,
    timer: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let executor = Arc::clone(&self.executor);
        let mut core = lock(&executor.core);
        let now_us = core.now_us;
        core.count += 1;
        let count = core.count;
        let lane = &mut core.lanes[self.process.number];
        if lane.dead || lane.life != self.process.life {
            return Poll::Pending;
        }
        if let Some(timer) = self.timer.take() {
            lane.timers.remove(&timer);
        }
        if now_us + lane.ahead_us >= self.ends_us {
            return Poll::Ready(());
        }
        let timer = (self.ends_us, count);
        lane.timers.insert(timer, context.waker().clone());
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // The waker is dropped outside of the lock: it may be the last owner of its task.
            let removed = lock(&self.executor.core).lanes[self.process.number].timers.remove(&timer);
            drop(removed);
        }
    }
}

pub(in crate::sim) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A panic in one task of a simulation says nothing about the others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
