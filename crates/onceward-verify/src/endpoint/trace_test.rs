use std::time::{Duration, Instant};

use super::super::message::{Answer, Ending, Meaning, Shot};
use super::{Tone, Trace};

fn shot(ms: u64, key: &str, status: u16, location: bool, body: &str) -> Shot {
    let fields = if location { vec![("location".to_owned(), "/1".to_owned())] } else { Vec::new() };
    let answer = Answer { status, fields, body: body.to_owned().into(), meaning: Meaning::Usual };
    let sent = Instant::now() + Duration::from_millis(ms);
    Shot { key: key.into(), label: "x".into(), sent, ended: sent, ending: Ending::Answered(answer) }
}

/// What is wrong with a replay shows, whether it is a field, the status or the body.
#[test]
fn a_replay_that_is_not_exact_has_another_colour() {
    let first = shot(0, "k", 201, true, "one");
    for (replay, tone) in [
        (shot(1, "k", 201, true, "one"), Tone::Done),
        (shot(1, "k", 201, false, "one"), Tone::Another),
        (shot(1, "k", 200, true, "one"), Tone::Another),
        (shot(1, "k", 409, true, "one"), Tone::Another),
        (shot(1, "k", 409, false, "in progress"), Tone::Later),
        (shot(1, "k", 201, true, "two"), Tone::Another),
        (shot(1, "another", 201, true, "two"), Tone::Done),
    ] {
        let mut trace = Trace::new(&[]);
        trace.shots(&[first.clone(), replay.clone()]);
        let tones: Vec<Tone> = trace.timeline().lanes.iter().map(|lane| lane.tone).collect();
        assert_eq!(tones, [Tone::Done, tone], "{replay:?}");
    }
    let mut trace = Trace::new(&["Location".to_owned()]);
    trace.shots(&[first, shot(1, "k", 201, false, "one")]);
    assert_eq!(trace.timeline().lanes[1].tone, Tone::Done, "the field may differ");
}

/// Of several that were done and of which only one must have been, all but the first have another colour.
#[test]
fn all_but_the_first_of_those_that_exclude_each_other_are_wrong() {
    let mut trace = Trace::new(&[]);
    trace.shots(&[shot(0, "a", 201, true, "x"), shot(1, "b", 412, false, ""), shot(2, "c", 201, true, "x")]);
    trace.is_wrong_but_first("x");
    let tones: Vec<Tone> = trace.timeline().lanes.iter().map(|lane| lane.tone).collect();
    assert_eq!(tones, [Tone::Done, Tone::Refused, Tone::Another]);
}
