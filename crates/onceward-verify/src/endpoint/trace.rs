//! Records the timeline of a round for the report: which request got which answer, and when.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use serde::Serialize;

use super::compare;
use super::message::{Answer, Ending, Shot};

/// Lanes of a timeline that are shown; a hundred like ones tell no more than three.
const LANES_MAX: usize = 14;
/// Lanes that ended in the same way and are still shown one by one.
const ALIKE_MAX: usize = 3;

/// One request in a timeline.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Lane {
    /// The description.
    pub label: String,
    /// When its last byte left, in microseconds since the round began.
    pub sent_us: u64,
    /// When it ended.
    pub ended_us: u64,
    /// How it ended, in a few words.
    pub ending: String,
    /// How that looks from afar.
    pub tone: Tone,
    /// How many more there were like this one, which are not shown.
    pub more: usize,
}

/// How the end of a request looks from afar.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Tone {
    /// It was done.
    Done,
    /// It was done, with another answer than its key got before, or with one that is not its own.
    Another,
    /// Not now: try again.
    Later,
    /// It was refused.
    Refused,
    /// It failed or ended without an answer.
    Failed,
}

/// Something that happened to all of them at once.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Mark {
    /// When, in microseconds since the round began.
    pub at_us: u64,
    /// What.
    pub text: String,
}

/// The timeline of a round.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Timeline {
    /// The requests, in the order in which they were sent.
    pub lanes: Vec<Lane>,
    /// The other events.
    pub marks: Vec<Mark>,
}

/// A timeline that is being made.
pub(super) struct Trace {
    start: Instant,
    shots: Vec<Shot>,
    marks: Vec<(Instant, String)>,
    /// Labels of requests that were done and must not have been.
    wrong: Vec<String>,
    /// Labels of requests of which only one must have been done.
    wrong_but_first: Vec<String>,
    /// Fields that may differ in a replay.
    volatile: Vec<String>,
}

impl Trace {
    pub(super) fn new(volatile: &[String]) -> Self {
        Self {
            start: Instant::now(),
            shots: Vec::new(),
            marks: Vec::new(),
            wrong: Vec::new(),
            wrong_but_first: Vec::new(),
            volatile: volatile.to_vec(),
        }
    }

    pub(super) fn shots(&mut self, shots: &[Shot]) {
        self.shots.extend_from_slice(shots);
    }

    pub(super) fn mark(&mut self, text: impl Into<String>) {
        self.mark_at(Instant::now(), text);
    }

    pub(super) fn mark_at(&mut self, at: Instant, text: impl Into<String>) {
        self.marks.push((at, text.into()));
    }

    /// That what these got is not theirs, although it looks like success.
    pub(super) fn is_wrong(&mut self, label: &str) {
        self.wrong.push(label.to_owned());
    }

    /// The same of all of these but the first that was done.
    pub(super) fn is_wrong_but_first(&mut self, label: &str) {
        self.wrong_but_first.push(label.to_owned());
    }

    /// The timeline, with no more lanes than an operator can look at.
    pub(super) fn timeline(&self) -> Timeline {
        let mut shots: Vec<&Shot> = self.shots.iter().collect();
        shots.sort_by_key(|shot| shot.sent);
        let mut lanes: Vec<Lane> = Vec::new();
        let (mut answers, mut done) = (HashMap::<&str, &Answer>::new(), HashSet::new());
        for shot in shots {
            let mut lane = self.lane(shot);
            // A replay that lacks a field, or has another status, is another answer, too.
            if let Some(answer) = shot.answer()
                && !shot.key.is_empty()
            {
                let first = answers.get(shot.key.as_str()).copied();
                let is_replay = answer.is_success()
                    || first.is_some_and(|first| !first.body.is_empty() && first.body == answer.body);
                let differs = |first| compare::differences(first, answer, &self.volatile).is_some();
                if is_replay && first.is_some_and(differs) {
                    lane.tone = Tone::Another;
                }
                if first.is_none() && answer.is_success() {
                    answers.insert(&shot.key, answer);
                }
            }
            if lane.tone == Tone::Done {
                let is_later = !done.insert(lane.label.clone());
                if self.wrong.contains(&lane.label) || is_later && self.wrong_but_first.contains(&lane.label)
                {
                    lane.tone = Tone::Another;
                }
            }
            let alike: Vec<usize> = (0..lanes.len())
                .filter(|index| (&lanes[*index].label, &lanes[*index].ending) == (&lane.label, &lane.ending))
                .collect();
            match alike.last() {
                Some(last) if alike.len() >= ALIKE_MAX || lanes.len() >= LANES_MAX => lanes[*last].more += 1,
                None if lanes.len() >= LANES_MAX => {
                    lanes.last_mut().expect("there are some").more += 1;
                }
                _ => lanes.push(lane),
            }
        }
        let marks = self.marks.iter().map(|(at, text)| Mark { at_us: self.micros(*at), text: text.clone() });
        Timeline { lanes, marks: marks.collect() }
    }

    fn lane(&self, shot: &Shot) -> Lane {
        let tone = match &shot.ending {
            Ending::Answered(answer) if answer.is_success() => Tone::Done,
            Ending::Answered(answer) if answer.is_not_now() => Tone::Later,
            Ending::Answered(answer) if answer.is_refusal() => Tone::Refused,
            _ => Tone::Failed,
        };
        Lane {
            label: shot.label.clone(),
            sent_us: self.micros(shot.sent),
            ended_us: self.micros(shot.ended),
            ending: shot.ending.to_string(),
            tone,
            more: 0,
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
#[path = "trace_test.rs"]
mod tests;
