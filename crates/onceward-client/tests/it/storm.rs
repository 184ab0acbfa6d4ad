//! A retry storm in simulated time: a thousand clients, and a server that slows down for ten seconds.
//!
//! The clients make the real decisions: each has a `Budget`, and each call a `RetryState`. Only the network and the
//! server are simulated, in ticks of ten milliseconds. This test also draws docs/retry-storm.svg;
//! `ONCEWARD_BLESS=1` writes it again.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use onceward_client::decisions::{Budget, Chance, Guard, KeyStatus, Next, RetryState, Sent, TryResult};
use onceward_client::{BreakerConfig, BudgetConfig, RetryConfig};

use crate::server::Dice;
use crate::storm_plot;

const CLIENTS: usize = 1_000;
const SECONDS: usize = 90;
const TICKS_PER_SECOND: usize = 100;
/// Each client begins five calls a second.
const CALLS_PER_SECOND: usize = CLIENTS * 5;
/// Requests per second that the server can handle, normally and while it is slow.
const WELL_PER_SECOND: usize = 6_000;
const SLOW_PER_SECOND: usize = 2_500;
const SLOW: std::ops::Range<usize> = 20..30;
/// Two seconds' worth of work; further requests get a 503.
const QUEUE_MAX: usize = 2 * WELL_PER_SECOND;
/// A client waits this long for an answer. The server does the work in any case.
const TIMEOUT_TICKS: usize = TICKS_PER_SECOND;

/// What happened, second by second.
pub struct Storm {
    pub calls: Vec<u32>,
    pub tries: Vec<u32>,
    pub answered: Vec<u32>,
}

#[derive(Clone, Copy)]
enum Event {
    /// A client begins a call.
    Begin(usize),
    /// A call has had no answer to this try.
    TimeOut(usize, u32),
    /// A call was turned away.
    TurnedAway(usize),
    /// A pause is over.
    Resend(usize),
}

struct Call {
    client: usize,
    state: RetryState,
    /// The try that is under way, if one is.
    under_way: Option<u32>,
}

struct Simulation {
    config: RetryConfig,
    dice: Dice,
    budgets: Vec<Budget>,
    calls: Vec<Call>,
    /// Future events, by tick.
    agenda: Vec<Vec<Event>>,
    queue: VecDeque<(usize, u32)>,
    storm: Storm,
}

pub fn simulate(budget: BudgetConfig) -> Storm {
    let config = RetryConfig::default()
        .with_budget(budget)
        .with_breaker(BreakerConfig::OFF)
        .with_call_at_most(Duration::from_secs(60));
    let mut simulation = Simulation {
        config,
        dice: Dice::new(1),
        budgets: (0..CLIENTS).map(|_| Budget::new(budget)).collect(),
        calls: Vec::new(),
        agenda: vec![Vec::new(); SECONDS * TICKS_PER_SECOND],
        queue: VecDeque::new(),
        storm: Storm { calls: vec![0; SECONDS], tries: vec![0; SECONDS], answered: vec![0; SECONDS] },
    };
    let between = CLIENTS * TICKS_PER_SECOND / CALLS_PER_SECOND;
    for client in 0..CLIENTS {
        simulation.agenda[client % between].push(Event::Begin(client));
    }
    let mut credit = 0;
    for tick in 0..SECONDS * TICKS_PER_SECOND {
        for event in std::mem::take(&mut simulation.agenda[tick]) {
            simulation.happen(tick, event, between);
        }
        let slow = SLOW.contains(&(tick / TICKS_PER_SECOND));
        credit += if slow { SLOW_PER_SECOND } else { WELL_PER_SECOND };
        while credit >= TICKS_PER_SECOND
            && let Some((call, number)) = simulation.queue.pop_front()
        {
            credit -= TICKS_PER_SECOND;
            // Some callers have given up; their requests cost the same.
            if simulation.calls[call].under_way == Some(number) {
                simulation.calls[call].under_way = None;
                simulation.storm.answered[tick / TICKS_PER_SECOND] += 1;
            }
        }
        credit = credit.min(WELL_PER_SECOND);
    }
    simulation.storm
}

impl Simulation {
    fn happen(&mut self, tick: usize, event: Event, between: usize) {
        let now = time(tick);
        match event {
            Event::Begin(client) => {
                self.plan(tick + between, Event::Begin(client));
                self.storm.calls[tick / TICKS_PER_SECOND] += 1;
                self.budgets[client].request(now);
                let state = RetryState::new(self.config, Guard::Keyed, now);
                self.calls.push(Call { client, state, under_way: None });
                self.send(tick, self.calls.len() - 1);
            }
            Event::TimeOut(call, number) if self.calls[call].under_way == Some(number) => {
                self.calls[call].under_way = None;
                self.failed(tick, call, &TryResult::Failed(Sent::Maybe));
            }
            Event::TimeOut(..) => {}
            Event::TurnedAway(call) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                let turned_away =
                    TryResult::Answered { status, retry_after: None, key_status: KeyStatus::NotStated };
                self.failed(tick, call, &turned_away);
            }
            Event::Resend(call) => {
                let client = self.calls[call].client;
                if self.calls[call].state.may_try(now).is_err() {
                    return;
                }
                if self.budgets[client].retry(now) {
                    return self.send(tick, call);
                }
                let (retry_in, chance) = (self.budgets[client].retry_in(now), Chance(self.dice.next()));
                let next = self.calls[call].state.wait_for_budget(now, retry_in, || chance);
                self.plan_retry(tick, call, next);
            }
        }
    }

    fn send(&mut self, tick: usize, call: usize) {
        let (number, _) = self.calls[call].state.begin(time(tick));
        self.storm.tries[tick / TICKS_PER_SECOND] += 1;
        if self.queue.len() >= QUEUE_MAX {
            return self.plan(tick + 1, Event::TurnedAway(call));
        }
        self.calls[call].under_way = Some(number);
        self.queue.push_back((call, number));
        self.plan(tick + TIMEOUT_TICKS, Event::TimeOut(call, number));
    }

    fn failed(&mut self, tick: usize, call: usize, tried: &TryResult) {
        let chance = Chance(self.dice.next());
        let next = self.calls[call].state.next(time(tick), tried, || chance);
        self.plan_retry(tick, call, next);
    }

    fn plan_retry(&mut self, tick: usize, call: usize, next: Next) {
        if let Next::Retry { pause } = next {
            let ticks = usize::try_from(pause.as_millis()).unwrap() * TICKS_PER_SECOND / 1000;
            self.plan(tick + ticks.max(1), Event::Resend(call));
        }
    }

    fn plan(&mut self, tick: usize, event: Event) {
        if let Some(events) = self.agenda.get_mut(tick) {
            events.push(event);
        }
    }
}

fn time(tick: usize) -> Duration {
    Duration::from_millis((tick * 1000 / TICKS_PER_SECOND) as u64)
}

fn sum(series: &[u32]) -> f64 {
    series.iter().copied().map(f64::from).sum()
}

#[test]
fn a_budget_keeps_a_slow_server_from_being_buried_in_retries() {
    let with = simulate(BudgetConfig::default());
    let without = simulate(BudgetConfig::UNLIMITED);
    let amplification = |storm: &Storm, seconds: std::ops::Range<usize>| {
        sum(&storm.tries[seconds.clone()]) / sum(&storm.calls[seconds])
    };
    let (all, trouble, after) = (0..SECONDS, SLOW.start..SLOW.end + 20, SECONDS - 20..SECONDS);
    let share = |storm: &Storm| sum(&storm.answered[after.clone()]) / sum(&storm.calls[after.clone()]);
    println!("                      with the budget   without");
    println!(
        "tries per call, all   {:>15.3}   {:>7.3}",
        amplification(&with, all.clone()),
        amplification(&without, all.clone())
    );
    println!(
        "  while in trouble    {:>15.3}   {:>7.3}",
        amplification(&with, trouble.clone()),
        amplification(&without, trouble.clone())
    );
    println!("answered at the end   {:>15.3}   {:>7.3}", share(&with), share(&without));

    assert!(amplification(&with, all.clone()) < 1.1, "a tenth more, over all");
    assert!(amplification(&with, trouble.clone()) < 1.1, "and while it matters");
    assert!(share(&with) > 0.99, "it is well again");
    assert!(amplification(&without, trouble) > 3.0, "what the budget prevents");
    assert!(share(&without) < 0.5, "long after the server has recovered, it is still buried");
    check_drawing(&storm_plot::draw(&with, &without, &SLOW));
}

fn check_drawing(svg: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/retry-storm.svg");
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        std::fs::write(&path, svg).unwrap();
    }
    let drawn = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(drawn == svg, "docs/retry-storm.svg is stale; ONCEWARD_BLESS=1 draws it again");
}
