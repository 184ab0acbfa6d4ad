//! Runs a check: the baseline, then the scenarios one after the other, then the report.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::baseline::{self, Measured};
use super::check::{Check, Effects};
use super::error::{Error, ErrorKind, Result};
use super::report::{Finding, Report, Spread, Verdict};
use super::scenario::{self, Plan, Scenario, Stop};
use super::scenario_context::ScenarioContext;
use super::server::Server;
use super::setup::Setup;

/// How a check is going.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// The largest number of requests that may be sent.
    Planned(u64),
    /// This scenario begins.
    Begins(&'static str),
    /// This number of further requests have been answered.
    Sent(u64),
    /// This scenario is over; it was allowed this many requests and needed no more.
    Ends(Verdict),
}

/// A scenario in a plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its name.
    pub name: &'static str,
    /// What it does, or what it lacks.
    pub what: String,
    /// Requests at most; zero where something is lacking.
    pub requests_max: u64,
}

pub(super) fn plan(check: &Check) -> Result<Vec<Planned>> {
    let setup = Setup::read(check)?;
    let baseline = baseline::plan(&setup);
    let first = Planned { name: "baseline", what: baseline.what, requests_max: baseline.requests_max };
    let scenarios = setup.scenarios.iter().map(|scenario| match (scenario.lacks)(&setup) {
        Some(lacks) => Planned { name: scenario.name, what: format!("left out: {lacks}"), requests_max: 0 },
        None => {
            let Plan { what, requests_max } = (scenario.plan)(&setup);
            Planned { name: scenario.name, what, requests_max }
        }
    });
    Ok(std::iter::once(first).chain(scenarios).collect())
}

pub(super) async fn run(check: &Check, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report> {
    let setup = Setup::read(check)?;
    raise_file_limit(check.clients as u64);
    let (start, started) = (Instant::now(), SystemTime::now());
    progress(Progress::Planned(plan(check)?.iter().map(|planned| planned.requests_max).sum()));
    let sent = |count| progress(Progress::Sent(count));
    let mut context = ScenarioContext::new(&setup, &sent)?;
    if let Some(command) = &check.start_command {
        context.server = Some(Server::start(command, &setup.place).await?);
    }
    progress(Progress::Begins("baseline"));
    let planned = baseline::plan(&setup);
    context.allowed = planned.requests_max;
    let (scenarios, keys_are_one) = match baseline::measure(&mut context).await? {
        Measured::Baseline(baseline) => {
            context.baseline = Some(baseline);
            (setup.scenarios.as_slice(), None)
        }
        // All other verdicts would be about this one fault.
        Measured::KeysAreOne(why) => (&[][..], Some(why)),
    };
    let mut requests = context.sent;
    let mut findings = Vec::new();
    if let Some(why) = keys_are_one {
        let scenario = scenario::distinct_keys();
        findings.push(finding(scenario, &mut context, Err(Stop::Violated(why)), start));
    }
    for scenario in scenarios {
        progress(Progress::Begins(scenario.name));
        let finding = run_scenario(scenario, &mut context).await;
        requests += finding.requests;
        progress(Progress::Ends(finding.verdict));
        findings.push(finding);
    }
    let request_took = context.baseline.as_ref().map_or(Duration::ZERO, |baseline| baseline.took);
    Ok(Report {
        url: check.url.clone(),
        method: check.method.clone(),
        version: env!("CARGO_PKG_VERSION"),
        run: context.run_name(),
        seed: check.seed,
        started_unix_s: started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
        took_ms: millis(start.elapsed()),
        requests,
        clients: check.clients,
        effects_seen: check.effects != Effects::Unseen,
        request_took_us: u64::try_from(request_took.as_micros()).unwrap_or(u64::MAX),
        spread: Spread::of(&context.spreads),
        findings,
    })
}

async fn run_scenario(scenario: &Scenario, context: &mut ScenarioContext<'_>) -> Finding {
    let start = Instant::now();
    (context.sent, context.notes) = (0, Vec::new());
    context.round();
    let ended = match (scenario.lacks)(context.setup) {
        Some(lacks) => Err(Stop::NotApplicable(lacks.to_owned())),
        None => {
            context.allowed = (scenario.plan)(context.setup).requests_max;
            (scenario.run)(context).await
        }
    };
    finding(scenario, context, ended, start)
}

/// A verdict with everything that a reader needs.
fn finding(
    scenario: &Scenario,
    context: &mut ScenarioContext<'_>,
    ended: std::result::Result<String, Stop>,
    start: Instant,
) -> Finding {
    let (verdict, why) = match ended {
        Ok(why) if context.setup.oracle.sees() => (Verdict::Holds, why),
        // A sentence that speaks of effects must not claim what nobody counted.
        Ok(why) => (Verdict::Holds, format!("{why} (by the answers: effects were not counted)")),
        Err(Stop::Held(why)) => (Verdict::Held, why),
        Err(Stop::Violated(why)) => (Verdict::Violated, why),
        Err(Stop::Inconclusive(why)) => (Verdict::Inconclusive, why),
        Err(Stop::NotApplicable(why)) => (Verdict::NotApplicable, why),
    };
    Finding {
        scenario: scenario.name,
        promise: scenario.promise,
        verdict,
        why,
        notes: std::mem::take(&mut context.notes),
        requests: context.sent,
        took_ms: millis(start.elapsed()),
        reproduce: context.setup.check.command_line(scenario.name),
        timeline: (verdict == Verdict::Violated).then(|| context.trace.timeline()),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A thousand connections need a thousand open files, which is where many systems stop by default.
fn raise_file_limit(clients: u64) {
    let limit = getrlimit(Resource::Nofile);
    // Twice, because in a test the endpoint lives in the same process.
    let wanted = clients * 2 + 256;
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        let (Stop::Violated(why) | Stop::Held(why) | Stop::Inconclusive(why) | Stop::NotApplicable(why)) =
            stop;
        Self::new(ErrorKind::Unreachable, why)
    }
}
