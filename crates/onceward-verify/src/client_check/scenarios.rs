//! The scenarios of clients: what a run meets, and how its tries are judged.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::ClientCheck;
use super::client_process::{ClientProcess, Ended};
use super::flaky_server::{DONE, FlakyServer, Step};
use super::http_try::Try;
use super::judge;
use crate::endpoint::report::{Finding, Lane, Mark, ScenarioVerdict, Timeline, Tone};
use crate::endpoint::{Cause, Error, ErrorKind, Result, Stop};

/// Something that a client that retries must do.
#[derive(Debug)]
pub struct ClientScenario {
    /// The name.
    pub name: &'static str,
    /// The promise that holds if it passes.
    pub promise: &'static str,
    run: for<'a> fn(&'a mut ClientContext<'_>) -> Judging<'a>,
}

type Judging<'a> = Pin<Box<dyn Future<Output = std::result::Result<String, Stop>> + Send + 'a>>;

/// All scenarios of clients.
pub fn all() -> &'static [ClientScenario] {
    &ALL
}

static ALL: [ClientScenario; 8] = [
    ClientScenario {
        name: "same-key",
        promise: "Every try of one intent has the same key, whatever the last one met.",
        run: |context| Box::pin(judge::same_key(context)),
    },
    ClientScenario {
        name: "same-bytes",
        promise: "Every try of one intent sends the same method, path, Content-Type and body.",
        run: |context| Box::pin(judge::same_bytes(context)),
    },
    ClientScenario {
        name: "key-per-intent",
        promise: "Two intents have two keys.",
        run: |context| Box::pin(judge::key_per_intent(context)),
    },
    ClientScenario {
        name: "survives-kill",
        promise: "Killed while it waits for the answer and run again for the same intent, it sends the same key and bytes.",
        run: |context| Box::pin(judge::survives_kill(context)),
    },
    ClientScenario {
        name: "final-answers",
        promise: "It does not try again after an answer that is final: 201, 400 or 422.",
        run: |context| Box::pin(judge::final_answers(context)),
    },
    ClientScenario {
        name: "retry-after",
        promise: "It does not come back before the time that Retry-After says.",
        run: |context| Box::pin(judge::retry_after(context)),
    },
    ClientScenario {
        name: "back-off",
        promise: "Its pauses grow, and have jitter: clients that failed together do not come back together.",
        run: |context| Box::pin(judge::back_off(context)),
    },
    ClientScenario {
        name: "bounded-tries",
        promise: "It gives up in the end.",
        run: |context| Box::pin(judge::bounded_tries(context)),
    },
];

/// Those of these names, or all if none is named.
pub(super) fn named(names: &[String]) -> Result<Vec<&'static ClientScenario>> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|scenario| scenario.name != **name)) {
        let known: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        let why = format!("there is no scenario of clients `{unknown}`; there are {}", known.join(", "));
        return Err(Error::invalid(why));
    }
    let is_meant =
        |scenario: &&ClientScenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(ALL.iter().filter(is_meant).collect())
}

/// A run of the client that is over.
#[derive(Clone)]
pub(super) struct Played {
    /// What it met, in a few words.
    pub(super) label: String,
    pub(super) tries: Vec<Try>,
    pub(super) ended: Ended,
    /// What it wrote, for the end of a message, if it sent nothing.
    pub(super) said: String,
}

/// What a scenario works with.
pub(super) struct ClientContext<'a> {
    pub(super) check: &'a ClientCheck,
    pub(super) server: &'a FlakyServer,
    pub(super) notes: Vec<String>,
    /// Runs that met one fault each; made once, for all scenarios that look at them.
    pub(super) flaky: Option<Vec<Played>>,
    /// Runs that met nothing but failures; the same.
    pub(super) hopeless: Option<Vec<Played>>,
    /// The runs that this scenario looked at.
    shown: Vec<Played>,
    marks: Vec<(Instant, String)>,
    intents: u64,
    tries: u64,
}

impl<'a> ClientContext<'a> {
    pub(super) fn new(check: &'a ClientCheck, server: &'a FlakyServer) -> Self {
        Self {
            check,
            server,
            notes: Vec::new(),
            flaky: None,
            hopeless: None,
            shown: Vec::new(),
            marks: Vec::new(),
            intents: 0,
            tries: 0,
        }
    }

    /// The name of an intent that nobody has used.
    pub(super) fn intent(&mut self) -> String {
        self.intents += 1;
        format!("{}-{}", self.server.run_name(), self.intents)
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Lets a scenario look at these runs.
    pub(super) fn show(&mut self, runs: &[Played]) {
        self.shown.extend_from_slice(runs);
    }

    /// Runs the command, each time for a new intent, all at the same time, and each with a script of its own.
    pub(super) async fn run_all(
        &mut self,
        scripts: Vec<(String, Vec<Step>)>,
    ) -> std::result::Result<Vec<Played>, Stop> {
        let mut running = tokio::task::JoinSet::new();
        for (index, (label, script)) in scripts.into_iter().enumerate() {
            let intent = self.intent();
            let url = expect(self.server, &intent, script).await?;
            let mut process = start(self.check, &url, &intent)?;
            let (run_within, tries_max) = (self.check.run_within, self.check.tries_max);
            let tried = self.server.tried(&intent, tries_max + 1);
            running.spawn(async move {
                let ended = wait(&mut process, run_within, tried).await;
                (index, label, intent, ended, process)
            });
        }
        let mut played = Vec::new();
        while let Some(over) = running.join_next().await {
            let (index, label, intent, ended, process) =
                over.map_err(|error| Stop::inconclusive(error.to_string()))?;
            let ended = ended.map_err(|error| Stop::inconclusive(error.to_string()))?;
            played.push((index, read_run(self.server, label, &intent, ended, process).await));
        }
        played.sort_by_key(|(index, _)| *index);
        let played: Vec<Played> = played.into_iter().map(|(_, played)| played).collect();
        self.tries += played.iter().map(|played| played.tries.len() as u64).sum::<u64>();
        Ok(played)
    }

    /// Runs the command for this intent and kills it as soon as its first try is there.
    pub(super) async fn run_and_kill(&mut self, intent: &str) -> std::result::Result<Played, Stop> {
        let url = expect(self.server, intent, vec![Step::Hang]).await?;
        let mut process = start(self.check, &url, intent)?;
        let ended = tokio::select! {
            () = self.server.tried(intent, 1) => {
                process.kill().await;
                self.marks.push((Instant::now(), "SIGKILL".to_owned()));
                Ended::TookTooLong
            }
            ended = process.end(self.check.run_within) => ended.map_err(|error| Stop::inconclusive(error.to_string()))?,
        };
        Ok(self.over("before the kill", intent, ended, process).await)
    }

    /// Runs the command once more for this intent.
    pub(super) async fn run_again(&mut self, intent: &str) -> std::result::Result<Played, Stop> {
        let url = expect(self.server, intent, vec![DONE]).await?;
        let mut process = start(self.check, &url, intent)?;
        let tried = self.server.tried(intent, self.check.tries_max + 1);
        let ended = wait(&mut process, self.check.run_within, tried).await;
        let ended = ended.map_err(|error| Stop::inconclusive(error.to_string()))?;
        Ok(self.over("run again", intent, ended, process).await)
    }

    async fn over(&mut self, label: &str, intent: &str, ended: Ended, process: ClientProcess) -> Played {
        let played = read_run(self.server, label.to_owned(), intent, ended, process).await;
        self.tries += played.tries.len() as u64;
        played
    }

    /// The key of a try.
    pub(super) fn key(&self, this: &Try) -> Option<String> {
        this.sent.as_ref()?.key(&self.check.key_header, self.check.key_pointer.as_deref())
    }

    fn timeline(&self) -> Timeline {
        let begin = self.shown.iter().flat_map(|run| &run.tries).map(|one| one.at).min();
        let Some(begin) = begin else { return Timeline::default() };
        let micros =
            |at: Instant| u64::try_from(at.saturating_duration_since(begin).as_micros()).unwrap_or(u64::MAX);
        let mut lanes = Vec::new();
        for run in &self.shown {
            let first = run.tries.iter().find_map(|one| self.key(one));
            for (number, one) in run.tries.iter().enumerate().take(LANES_PER_RUN) {
                let key = self.key(one);
                let tone = match one.status {
                    _ if one.sent.is_some() && key != first => Tone::Another,
                    Some(200..300) => Tone::Done,
                    Some(429 | 503) => Tone::Later,
                    Some(400..500) => Tone::Refused,
                    _ => Tone::Failed,
                };
                let key = key.map(|key| format!("; key {}", key.chars().take(KEY_CHARS).collect::<String>()));
                let ending = format!("{}{}", one.got, key.unwrap_or_default());
                let more =
                    run.tries.len().saturating_sub(LANES_PER_RUN) * usize::from(number + 1 == LANES_PER_RUN);
                let label = format!("{}, try {}", run.label, number + 1);
                let (sent_us, ended_us) = (micros(one.at), micros(one.ended));
                lanes.push(Lane { label, sent_us, ended_us, ending, tone, more });
            }
        }
        lanes.truncate(LANES_MAX);
        let marks =
            self.marks.iter().map(|(at, text)| Mark { at_us: micros(*at), text: text.clone() }).collect();
        Timeline { lanes, marks }
    }
}

/// As much of a timeline as an operator can look at.
const LANES_PER_RUN: usize = 6;
const LANES_MAX: usize = 16;
/// As much of a key as tells it from another.
const KEY_CHARS: usize = 16;

async fn expect(server: &FlakyServer, intent: &str, script: Vec<Step>) -> std::result::Result<String, Stop> {
    server.expect(intent, script).await.map_err(|error| Stop::inconclusive(format!("no port: {error}")))
}

fn start(check: &ClientCheck, url: &str, intent: &str) -> std::result::Result<ClientProcess, Stop> {
    ClientProcess::start(&check.command, url, intent)
        .map_err(|error| Stop::inconclusive(format!("the command cannot be run: {error}")))
}

/// What is known of a run that has ended.
async fn read_run(
    server: &FlakyServer,
    label: String,
    intent: &str,
    ended: Ended,
    process: ClientProcess,
) -> Played {
    let tries = server.tries(intent);
    let said = if tries.is_empty() { process.last_lines().await } else { String::new() };
    Played { label, tries, ended, said }
}

/// Waits for the end of a run, but for no more tries and no longer than allowed.
async fn wait(
    process: &mut ClientProcess,
    within: Duration,
    tried: impl Future<Output = ()>,
) -> std::io::Result<Ended> {
    tokio::select! {
        () = tried => {
            process.kill().await;
            Ok(Ended::TookTooLong)
        }
        ended = process.end(within) => ended,
    }
}

/// What a run has to do at all: send one request.
pub(super) async fn baseline(context: &mut ClientContext<'_>) -> Result<()> {
    let unfit = |why: String| Error::new(ErrorKind::Unfit, why);
    let runs = context.run_all(vec![("201".to_owned(), vec![DONE])]).await.map_err(Error::from)?;
    let run = &runs[0];
    if run.tries.is_empty() {
        return Err(unfit(format!(
            "the command sent nothing (it {}): does it call ${}?{}",
            match run.ended {
                Ended::Exited(true) => "ended with success",
                Ended::Exited(false) => "ended with a failure",
                Ended::TookTooLong => "took too long",
            },
            super::URL_VARIABLE,
            run.said
        )));
    }
    Ok(())
}

/// Plays one scenario.
pub(super) async fn play(
    scenario: &ClientScenario,
    context: &mut ClientContext<'_>,
) -> (Finding, Vec<Cause>) {
    let start = Instant::now();
    (context.notes, context.shown, context.marks, context.tries) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut fault, mut causes) = (None, Vec::new());
    let (verdict, why) = match (scenario.run)(context).await {
        Ok(why) => (ScenarioVerdict::Holds, why),
        Err(Stop::Violated(found)) => {
            (fault, causes) = (Some(found.kind), found.causes);
            (ScenarioVerdict::Violated, found.why)
        }
        Err(Stop::Held(why)) => (ScenarioVerdict::Held, why),
        Err(Stop::Inconclusive(why)) => (ScenarioVerdict::Inconclusive, why),
        Err(Stop::NotApplicable(why)) => (ScenarioVerdict::NotApplicable, why),
    };
    let finding = Finding {
        scenario: scenario.name,
        promise: scenario.promise,
        verdict,
        fault,
        same_cause_as: None,
        why,
        notes: std::mem::take(&mut context.notes),
        requests: context.tries,
        took_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        reproduce: context.check.command_line(scenario.name),
        timeline: (verdict == ScenarioVerdict::Violated).then(|| context.timeline()),
    };
    (finding, causes)
}
