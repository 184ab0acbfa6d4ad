use std::time::Instant;

use super::super::message::{Answer, Ending, Meaning, Shot};
use super::{effects, told_to_wait};

fn shot(status: u16) -> Shot {
    let answer = Answer { status, fields: Vec::new(), body: bytes::Bytes::new(), meaning: Meaning::Usual };
    let (sent, ended) = (Instant::now(), Instant::now());
    Shot { key: "k".into(), label: "x".into(), sent, ended, ending: Ending::Answered(answer) }
}

/// A 503 of a store that is down is not the 409 of a request in progress: which statuses there were is said.
#[test]
fn those_who_were_told_to_come_again_are_counted_by_their_statuses() {
    let shots: Vec<Shot> = [201, 503, 409, 409].into_iter().map(shot).collect();
    assert_eq!(told_to_wait(&shots).unwrap(), "3 were told to come again with 409, 503");
    assert_eq!(told_to_wait(&shots[..1]), None);
}

#[test]
fn one_effect_is_not_called_several() {
    assert_eq!([0, 1, 2].map(effects), ["0 effects", "1 effect", "2 effects"]);
}
