//! The server is killed during a request and started again. Half of the kills are aimed at the time between the effect and
//! the answer, where a second effect is made.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::super::fault::{Cause, FaultKind};
use super::super::message::{Answer, Shot};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::server::Server;
use super::super::setup::Setup;
use super::super::single_effect::effects;
use super::super::volley::sleep_until;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "crash",
    promise: "Killed at any moment and started again, there is at most one effect, and the key is soon free or done.",
    by_key: true,
    lacks: |setup| setup.check.start_command.is_none().then_some("say how it is started with --start-cmd"),
    plan,
    run: |context| Box::pin(run(context)),
};

/// Requests by which the moment of the effect is measured.
const MEASURED: u64 = 3;

fn plan(setup: &Setup) -> Plan {
    let kills = setup.check.kills as u64;
    let more = if setup.oracle.sees() {
        format!("; up to {} more if none falls between effect and answer", kills_max(setup) as u64 - kills)
    } else {
        String::new()
    };
    Plan::new(
        MEASURED + kills_max(setup) as u64 * (1 + TRIES_MAX),
        format!("{kills} times: SIGKILL during a request, half of them after its effect; start, retry{more}"),
    )
}

/// The time between effect and answer is what kills are for. If none of them fell there, half as many more are aimed at it.
fn kills_max(setup: &Setup) -> usize {
    let kills = setup.check.kills;
    if setup.oracle.sees() { kills + kills.div_ceil(2) } else { kills }
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let planned = context.setup.check.kills;
    let mut server = context.server.take().expect("it was started");
    let mut counts = CrashCounts::default();
    let mut aim = measure(context).await?;
    let mut kills = 0;
    while kills < planned || kills < kills_max(context.setup) && counts.between == 0 {
        let moment = match kills % 10 {
            _ if kills >= planned => Moment::Aimed(aim.next(context)),
            9 => Moment::Answered,
            even if even % 2 == 0 => Moment::Aimed(aim.next(context)),
            _ => Moment::After(aim.anywhere(kills, planned, context)),
        };
        kills += 1;
        match crash(context, &mut server, moment, &mut counts).await {
            Ok(fell) => aim.learn(moment, fell),
            Err(stop) => {
                // The next scenario needs a running server.
                if server.restart().await.is_ok() && context.log_in().await.is_ok() {
                    context.server = Some(server);
                }
                return Err(stop);
            }
        }
    }
    context.server = Some(server);
    let between = if context.setup.oracle.sees() {
        format!(", {} of them between effect and answer", counts.between)
    } else {
        String::new()
    };
    if context.setup.oracle.sees() && counts.between == 0 {
        context.note("no kill fell between effect and answer: more --kills, or a slower request, may");
    }
    let unanswered = kills - counts.answered;
    if counts.held > 0 {
        return Err(Stop::Held(format!(
            "{kills} kills, {unanswered} before the answer{between}: at most one effect; {} of {kills} keys are held \
             as unknown until a person settles them",
            counts.held
        )));
    }
    Ok(format!(
        "{kills} kills, {unanswered} before the answer{between}: at most one effect, and every key was answered within \
         {:.1?}",
        counts.longest
    ))
}

/// When the effect of a request happens and when its answer comes, and what the kills so far have taught.
struct Aim {
    effect: Duration,
    answer: Duration,
    /// By how many microseconds kills have to come later than measured.
    later_us: i64,
}

/// No window is taken to be narrower: kills have to find it.
const WINDOW_MIN: Duration = Duration::from_micros(500);

impl Aim {
    fn window(&self) -> Duration {
        self.answer.saturating_sub(self.effect).max(WINDOW_MIN)
    }

    /// Between effect and answer.
    fn next(&self, context: &mut ScenarioContext<'_>) -> Duration {
        let moment = self.effect + context.moment(self.window());
        let micros = i64::try_from(moment.as_micros()).unwrap_or(i64::MAX).saturating_add(self.later_us);
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    }

    /// In each part of the request in turn.
    fn anywhere(&self, kill: usize, kills: usize, context: &mut ScenarioContext<'_>) -> Duration {
        let part = self.answer / u32::try_from(kills).unwrap_or(1);
        part * u32::try_from(kill).unwrap_or_default() + context.moment(part)
    }

    /// A server that was just started is slower or faster than the one that was measured.
    fn learn(&mut self, moment: Moment, fell: Fell) {
        let step = i64::try_from((self.window() / 2).max(WINDOW_MIN).as_micros()).unwrap_or(i64::MAX);
        match (moment, fell) {
            (Moment::Aimed(_), Fell::BeforeTheEffect) => self.later_us += step,
            (Moment::Aimed(_), Fell::AfterTheAnswer) => self.later_us -= step,
            _ => {}
        }
    }
}

/// Sends plain requests and asks for the effects all the while.
async fn measure(context: &mut ScenarioContext<'_>) -> Result<Aim, Stop> {
    let took = context.baseline().took;
    // Where nobody counts effects, or only slowly, the second half is as good as any.
    let mut aim = Aim { effect: took / 2, answer: took, later_us: 0 };
    if !context.setup.oracle.sees() {
        return Ok(aim);
    }
    let mut seen = Vec::new();
    for _ in 0..MEASURED {
        let before = context.effects().await?;
        let key = context.key();
        let (released, release) = oneshot::channel();
        let oracle = context.setup.oracle.clone();
        let request = context.request(&key).called("measured");
        let poll = async {
            let start = release.await.unwrap_or_else(|_| Instant::now());
            loop {
                let asked = start.elapsed();
                match oracle.count().await {
                    Ok(now) if now == before => tokio::task::yield_now().await,
                    Ok(_) => return Some(asked),
                    Err(_) => return None,
                }
            }
        };
        let send = context.fire_and_tell(vec![request.into()], Some(released));
        tokio::pin!(poll);
        tokio::pin!(send);
        // An effect that is seen only after the answer says nothing of when it happened.
        let shots = tokio::select! {
            effect = &mut poll => {
                let shots = send.await?;
                seen.push((effect, shots[0].ended - shots[0].sent));
                continue;
            }
            shots = &mut send => shots?,
        };
        seen.push((None, shots[0].ended - shots[0].sent));
        drop(shots);
    }
    let answer = seen.iter().map(|(_, answer)| *answer).min().unwrap_or(took);
    let effect = seen.iter().filter_map(|(effect, _)| *effect).min();
    // Not seen before the answer: the effect is close to it.
    aim.effect = effect.unwrap_or_else(|| answer.saturating_sub(Duration::from_millis(2))).min(answer);
    aim.answer = answer;
    Ok(aim)
}

/// When the server is killed.
#[derive(Clone, Copy)]
enum Moment {
    /// This long after the last byte of the request, anywhere in it.
    After(Duration),
    /// The same, aimed between effect and answer.
    Aimed(Duration),
    /// As soon as the answer is there.
    Answered,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(moment) | Self::Aimed(moment) => write!(f, "killed {moment:.1?} into the request"),
            Self::Answered => f.write_str("killed right after the answer"),
        }
    }
}

/// Where a kill fell, as far as it can be known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fell {
    BeforeTheEffect,
    Between,
    AfterTheAnswer,
    Unknown,
}

#[derive(Default)]
struct CrashCounts {
    answered: usize,
    /// Kills after the effect and before the answer, as far as effects are counted.
    between: usize,
    held: usize,
    longest: Duration,
}

async fn crash(
    context: &mut ScenarioContext<'_>,
    server: &mut Server,
    moment: Moment,
    counts: &mut CrashCounts,
) -> Result<Fell, Stop> {
    context.round();
    let before = context.effects().await?;
    let key = context.key();
    let (released, release) = oneshot::channel();
    let (answered, answer) = oneshot::channel();
    let request = context.request(&key).called("killed");
    let send = async {
        let shots = context.fire_and_tell(vec![request.into()], Some(released)).await;
        // The killer may have gone to work without waiting for it.
        let _ = answered.send(());
        shots
    };
    let kill = async {
        let start = release.await.unwrap_or_else(|_| Instant::now());
        match moment {
            Moment::After(moment) | Moment::Aimed(moment) => sleep_until(start + moment).await,
            Moment::Answered => answer.await.unwrap_or_default(),
        }
        server.kill().await;
        Instant::now()
    };
    let (shots, killed) = tokio::join!(send, kill);
    let first = shots?.remove(0);
    context.killed = Some(killed);
    context.trace.mark_at(killed, "SIGKILL");
    server.restart().await.map_err(|error| Stop::Inconclusive(error.to_string()))?;
    context.log_in().await.map_err(|error| Stop::Inconclusive(error.to_string()))?;
    context.trace.mark("up again");
    // What the kill left behind, before a retry can add to it.
    let left = context.runs(before, 0).await?;
    let up = Instant::now();
    let retry = context.request(&key).called("retry");
    let last = context.retry_until_replayed(retry, first.success()).await?;
    let waited = up.elapsed();
    counts.longest = counts.longest.max(waited);
    let is_done = last.success().is_some() || last.is_not_now() && !context.is_stuck(&last, first.success());
    let runs = context.runs(before, i64::from(is_done)).await?;
    check_answers(context, moment, [&first, &last], [left, runs], waited)?;
    let fell = match (first.answer(), left) {
        (Some(_), _) => Fell::AfterTheAnswer,
        (None, None) => Fell::Unknown,
        (None, Some(0)) => Fell::BeforeTheEffect,
        (None, Some(_)) => Fell::Between,
    };
    counts.between += usize::from(fell == Fell::Between);
    counts.answered += usize::from(first.answer().is_some());
    counts.held += usize::from(last.answer().is_some_and(Answer::is_held));
    Ok(fell)
}

fn check_answers(
    context: &mut ScenarioContext<'_>,
    moment: Moment,
    [first, last]: [&Shot; 2],
    [left, runs]: [Option<i64>; 2],
    waited: Duration,
) -> Result<(), Stop> {
    let when = moment.to_string();
    if [left, runs].into_iter().flatten().any(|runs| runs < 0) {
        return Err(Stop::inconclusive(
            "the effects are forgotten with the server: they must be counted where they last",
        ));
    }
    if let Some(runs) = runs.filter(|runs| *runs > 1) {
        let left = effects(left.unwrap_or_default());
        return Err(Stop::violated(
            FaultKind::DoubleEffect,
            format!("{when}: {left} before the retry, and {} after it", effects(runs)),
        ));
    }
    if context.is_stuck(last, first.success()) {
        let lease = context.setup.check.lease;
        return Err(Stop::violated(
            FaultKind::Wedged,
            format!(
                "{when}, the key is wedged: {waited:.1?} later it still gets {}, where the lease is {lease:?}",
                last.ending
            ),
        ));
    }
    // A replay, although its status does not say so.
    let is_replay = last.is_not_now();
    if let (Some(before), Some(after)) = (first.success(), last.answer()) {
        if !after.is_success() && !after.is_held() && !is_replay {
            let why = format!("{when}, the answer that was given is lost: the retry got {after}");
            return Err(Stop::violated(FaultKind::LostAnswer, why));
        }
        if !after.is_held() {
            context.same_answer(&format!("{when}, the answer that was given is lost"), before, after)?;
        }
    } else if is_replay && let Some(after) = last.answer() {
        let status = after.status;
        context.is_inexact(
            format!("{when}, the retry got its answer with {status}"),
            Cause::Replay(format!("status {status}")),
        );
    }
    match last.answer() {
        Some(answer) if (answer.is_success() || is_replay) && runs == Some(0) => Err(Stop::violated(
            FaultKind::LostAnswer,
            format!("{when}, it is answered as done, and no effect happened"),
        )),
        Some(answer) if answer.is_success() || answer.is_held() || is_replay => Ok(()),
        Some(answer) => Err(Stop::violated(FaultKind::LostAnswer, format!("{when}, the retry got {answer}"))),
        None => Err(Stop::inconclusive(format!("{when}, the retry got no answer: {}", last.ending))),
    }
}
