//! Tests of collecting the answers to a batch.

use onceward::{Applied, ErrorKind, Id, Record, Seen, State, Version};

use super::*;

fn batch(swaps: usize) -> Vec<Swap> {
    let id = |number| Id::new("s", "o", &format!("{number}")).unwrap();
    (0..swaps).map(|number| Swap { id: id(number), seen: Seen::Absent, new: None }).collect()
}

fn down() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is away")
}

const WON: Swapped = Swapped::Won(Version(7));

#[test]
fn one_statement_that_fails_leaves_the_others_as_they_are() {
    let mut answers = BatchAnswers::new(&batch(4), 100);
    answers.add(&[1, 3], Ok(vec![(1, WON), (3, Swapped::Lost(None))]));
    assert_eq!(answers.open(), [0, 2]);
    answers.add(&[0, 2], Err(down().maybe_applied()));
    let answers = answers.result().unwrap();
    assert!(matches!(
        answers[..],
        [Swapped::Failed(_), Swapped::Won(_), Swapped::Failed(_), Swapped::Lost(None)]
    ));
}

#[test]
fn where_nothing_was_answered_the_batch_has_failed() {
    let mut answers = BatchAnswers::new(&batch(2), 100);
    answers.add(&[], Ok(Vec::new()));
    answers.add(&[0], Err(down()));
    answers.add(&[1], Err(down()));
    assert_eq!(answers.result().unwrap_err().applied(), Applied::No);

    let mut answers = BatchAnswers::new(&batch(2), 100);
    answers.add(&[0], Err(down()));
    answers.add(&[1], Err(down().maybe_applied()));
    assert_eq!(answers.result().unwrap_err().applied(), Applied::Maybe);
}

/// A record that cannot be read is no failure of its statement.
#[test]
fn a_failure_of_one_record_is_its_own() {
    let mut answers = BatchAnswers::new(&batch(1), 100);
    answers.add(&[0], Ok(vec![(0, Swapped::Failed(Error::new(ErrorKind::Damaged, "a bit has flipped")))]));
    assert!(matches!(answers.result().unwrap()[..], [Swapped::Failed(_)]));
}

#[test]
fn a_record_that_is_too_large_is_refused_before_it_fails_others() {
    let mut batch = batch(2);
    let bytes = vec![0; 101];
    batch[0].new = Some(Record::new(State::Done, bytes));
    let mut answers = BatchAnswers::new(&batch, 100);
    assert_eq!(answers.open(), [1]);
    answers.add(&[1], Err(down()));
    let answers = answers.result().unwrap();
    assert!(matches!(&answers[0], Swapped::Failed(error) if error.kind() == ErrorKind::Invalid));
    assert!(matches!(&answers[1], Swapped::Failed(error) if error.kind() == ErrorKind::Unavailable));
}

#[test]
fn an_empty_batch_has_no_answers() {
    assert!(BatchAnswers::new(&[], 100).result().unwrap().is_empty());
}
