//! Runs a check: the baseline, then the scenarios one after the other, then the report.

use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::baseline::{self, Measured};
use super::check::{Check, Effects};
use super::error::{Error, ErrorKind, Result};
use super::fault::{self, Cause, Fault, FaultKind};
use super::report::{Finding, Report, ScenarioVerdict, Spread};
use super::scenario::{self, Plan, Scenario, Stop};
use super::scenario_context::ScenarioContext;
use super::secrets::Secrets;
use super::server::Server;
use super::setup::Setup;
use super::trace::Timeline;

/// How a check is going.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// The largest number of requests that may be sent.
    Planned(u64),
    /// This scenario begins.
    Begins(&'static str),
    /// This number of further requests have been answered.
    Sent(u64),
    /// This scenario is over; it was allowed this many requests and needed no more.
    Ends(ScenarioVerdict),
}

/// A scenario in a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planned {
    /// Its name.
    pub name: &'static str,
    /// The action, or what is missing for it.
    pub what: String,
    /// Requests at most; zero where something is lacking.
    pub requests_max: u64,
}

/// What would be done. What it reports of an option that makes no sense has no secrets of the check in it.
pub(super) fn plan(check: &Check) -> Result<Vec<Planned>> {
    plan_all(check).map_err(|error| concealed(&error, &Secrets::of(check)))
}

fn plan_all(check: &Check) -> Result<Vec<Planned>> {
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

/// Runs a check. What it reports, an error too, has no secrets of the check in it.
pub(super) async fn run(check: &Check, progress: &(dyn Fn(Progress) + Sync)) -> Result<Report> {
    let mut secrets = Secrets::of(check);
    match run_all(check, progress, &mut secrets).await {
        Ok(mut report) => {
            report.conceal(&secrets);
            Ok(report)
        }
        Err(error) => Err(concealed(&error, &secrets)),
    }
}

fn concealed(error: &Error, secrets: &Secrets) -> Error {
    let mut text = error.to_string();
    secrets.conceal(&mut text);
    Error::new(error.kind(), text)
}

async fn run_all(
    check: &Check,
    progress: &(dyn Fn(Progress) + Sync),
    secrets: &mut Secrets,
) -> Result<Report> {
    let setup = Setup::read(check)?;
    raise_file_limit(check.clients as u64);
    let (start, started) = (Instant::now(), SystemTime::now());
    progress(Progress::Planned(plan(check)?.iter().map(|planned| planned.requests_max).sum()));
    let sent = |count| progress(Progress::Sent(count));
    let mut context = ScenarioContext::new(&setup, &sent)?;
    if let Some(command) = &check.start_command {
        context.server = Some(Server::start(command, &setup.started).await?);
    }
    context.log_in().await?;
    learn_logins(&mut context, secrets);
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
    let (mut findings, mut causes) = (Vec::new(), Vec::new());
    if let Some(why) = keys_are_one {
        let scenario = scenario::distinct_keys();
        let fault = Fault::new(FaultKind::LostAnswer, why);
        let (finding, its) = finding(scenario, &mut context, Err(Stop::Violated(fault)), start);
        findings.push(finding);
        causes.push(its);
    }
    for scenario in scenarios {
        progress(Progress::Begins(scenario.name));
        let (finding, its) = run_scenario(scenario, &mut context).await;
        requests += finding.requests;
        progress(Progress::Ends(finding.verdict));
        findings.push(finding);
        causes.push(its);
        learn_logins(&mut context, secrets);
    }
    let deduplicates = context.baseline.as_ref().is_none_or(|baseline| baseline.deduplicates);
    fault::attribute(&mut findings, &causes);
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
        key_form: baseline::describe_form(&context),
        deduplicates,
        spread: Spread::of(&context.spreads),
        findings,
    })
}

/// What a login printed is a secret, whatever its field is called.
fn learn_logins(context: &mut ScenarioContext<'_>, secrets: &mut Secrets) {
    context.logins.drain(..).for_each(|(_, value)| secrets.credential(&value));
}

async fn run_scenario(scenario: &Scenario, context: &mut ScenarioContext<'_>) -> (Finding, Vec<Cause>) {
    let start = Instant::now();
    (context.sent, context.notes, context.held, context.inexact) = (0, Vec::new(), 0, None);
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
) -> (Finding, Vec<Cause>) {
    let (mut fault, mut causes) = (None, Vec::new());
    let (ended, shown) = with_what_was_kept(ended, context);
    let deduplicates = context.baseline.as_ref().is_none_or(|baseline| baseline.deduplicates);
    let (verdict, why) = match ended {
        Ok(why) if !deduplicates && scenario.by_key => {
            (ScenarioVerdict::Vacuous, format!("nothing is deduplicated here, so this says nothing: {why}"))
        }
        Ok(why) if context.setup.oracle.sees() => (ScenarioVerdict::Holds, why),
        // A sentence that speaks of effects must not claim what nobody counted.
        Ok(why) => (ScenarioVerdict::Holds, format!("{why} (by the answers: effects were not counted)")),
        Err(Stop::Held(why)) => (ScenarioVerdict::Held, why),
        Err(Stop::Violated(found)) => {
            (fault, causes) = (Some(found.kind), found.causes);
            if !deduplicates && scenario.by_key && found.kind <= FaultKind::LostAnswer {
                causes.push(Cause::NotDeduplicated);
            }
            (ScenarioVerdict::Violated, found.why)
        }
        Err(Stop::Inconclusive(why)) => (ScenarioVerdict::Inconclusive, why),
        Err(Stop::NotApplicable(why)) => (ScenarioVerdict::NotApplicable, why),
    };
    let check = Check { key_notation: context.key_notation, ..context.setup.check.clone() };
    let finding = Finding {
        scenario: scenario.name,
        promise: scenario.promise,
        verdict,
        fault,
        same_cause_as: None,
        why,
        notes: std::mem::take(&mut context.notes),
        requests: context.sent,
        took_ms: millis(start.elapsed()),
        reproduce: check.command_line(scenario.name),
        timeline: (verdict == ScenarioVerdict::Violated)
            .then(|| shown.unwrap_or_else(|| context.trace.timeline())),
    };
    (finding, causes)
}

/// How a scenario ended, with what it kept for its end: a replay that was not exact, unless there is something worse,
/// and keys that are held. Gives the round of the replay, too.
fn with_what_was_kept(
    ended: std::result::Result<String, Stop>,
    context: &mut ScenarioContext<'_>,
) -> (std::result::Result<String, Stop>, Option<Timeline>) {
    match (ended, context.inexact.take()) {
        (Err(Stop::Violated(fault)), _) => (Err(Stop::Violated(fault)), None),
        (_, Some((fault, shown))) => (Err(Stop::Violated(fault)), Some(shown)),
        (Ok(why), None) if context.held > 0 => {
            let held =
                if context.held == 1 { "1 key is".to_owned() } else { format!("{} keys are", context.held) };
            (
                Err(Stop::Held(format!(
                    "{held} held as unknown until an operator settles them; otherwise: {why}"
                ))),
                None,
            )
        }
        (ended, None) => (ended, None),
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
        let why = match stop {
            Stop::Violated(fault) => fault.why,
            Stop::Held(why) | Stop::Inconclusive(why) | Stop::NotApplicable(why) => why,
        };
        Self::new(ErrorKind::Unreachable, why)
    }
}
