//! The server is killed during a request and started again.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::super::message::{Answer, Shot};
use super::super::scenario_context::{ScenarioContext, TRIES_MAX};
use super::super::server::Server;
use super::super::setup::Setup;
use super::super::volley::sleep_until;
use super::{Plan, Scenario, Stop};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "crash",
    promise: "Killed at any moment and started again, there is at most one effect, and the key is soon free or done.",
    lacks: |setup| setup.check.start_command.is_none().then_some("say how it is started with --start-cmd"),
    plan,
    run: |context| Box::pin(run(context)),
};

fn plan(setup: &Setup) -> Plan {
    let kills = setup.check.kills as u64;
    Plan::new(kills * (1 + TRIES_MAX), format!("{kills} times: SIGKILL during a request, start, retry"))
}

async fn run(context: &mut ScenarioContext<'_>) -> Result<String, Stop> {
    let kills = context.setup.check.kills;
    let mut server = context.server.take().expect("it was started");
    let mut counts = CrashCounts::default();
    for kill in 0..kills {
        // Each kill falls into another part of the request, and every fifth one right behind its answer.
        let moment = if kill % 5 == 4 {
            Moment::Answered
        } else {
            let part = context.baseline().took / u32::try_from(kills).unwrap_or(1);
            Moment::After(part * u32::try_from(kill).unwrap_or_default() + context.moment(part))
        };
        if let Err(stop) = crash(context, &mut server, moment, &mut counts).await {
            // The next scenario needs a running server.
            if server.restart().await.is_ok() {
                context.server = Some(server);
            }
            return Err(stop);
        }
    }
    context.server = Some(server);
    let between = if context.setup.oracle.sees() {
        format!(", {} of them after the effect", counts.between)
    } else {
        String::new()
    };
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

/// When the server is killed.
#[derive(Clone, Copy)]
enum Moment {
    /// This long after the last byte of the request.
    After(Duration),
    /// As soon as the answer is there.
    Answered,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(moment) => write!(f, "killed {moment:.1?} into the request"),
            Self::Answered => f.write_str("killed right after the answer"),
        }
    }
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
) -> Result<(), Stop> {
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
            Moment::After(moment) => sleep_until(start + moment).await,
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
    context.trace.mark("up again");
    let up = Instant::now();
    let last = context.retry_until_answered(context.request(&key).called("retry")).await?;
    let waited = up.elapsed();
    counts.longest = counts.longest.max(waited);
    let runs = context.runs(before, i64::from(last.success().is_some())).await?;
    check_answers(context, moment, [&first, &last], runs, waited)?;
    // Between effect and answer is where a second effect is made.
    let effect_unanswered = runs == Some(1) && first.answer().is_none();
    counts.between += usize::from(effect_unanswered);
    counts.answered += usize::from(first.answer().is_some());
    counts.held += usize::from(last.answer().is_some_and(Answer::is_held));
    Ok(())
}

fn check_answers(
    context: &mut ScenarioContext<'_>,
    moment: Moment,
    [first, last]: [&Shot; 2],
    runs: Option<i64>,
    waited: Duration,
) -> Result<(), Stop> {
    let when = moment.to_string();
    if runs.is_some_and(|runs| runs < 0) {
        return Err(Stop::inconclusive(
            "the effects are forgotten with the server: they must be counted where they last",
        ));
    }
    if let Some(runs) = runs.filter(|runs| *runs > 1) {
        return Err(Stop::violated(format!("{when}, the retry ran it again: {runs} effects")));
    }
    if last.is_not_now() {
        let lease = context.setup.check.lease;
        return Err(Stop::violated(format!(
            "{when}, the key is wedged: {waited:.1?} later it still gets {}, where the lease is {lease:?}",
            last.ending
        )));
    }
    if let (Some(before), Some(after)) = (first.success(), last.answer()) {
        let differences = context.differences(before, after);
        if !differences.is_empty() {
            return Err(Stop::violated(format!(
                "{when}, the answer that was given is lost: {}",
                differences.join("; ")
            )));
        }
    }
    match last.answer() {
        Some(answer) if answer.is_success() && runs == Some(0) => {
            Err(Stop::violated(format!("{when}, it is answered as done, and no effect happened")))
        }
        Some(answer) if answer.is_success() || answer.is_held() => Ok(()),
        Some(answer) => Err(Stop::violated(format!("{when}, the retry got {answer}"))),
        None => Err(Stop::inconclusive(format!("{when}, the retry got no answer: {}", last.ending))),
    }
}
