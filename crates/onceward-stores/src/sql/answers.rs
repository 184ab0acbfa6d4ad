//! The answers to a batch, put together from the statements that it was split into.
//!
//! Each swap has an answer of its own: where one statement fails, what the others have done stands. Only if no
//! statement came to an answer is it the batch that failed.

use onceward::{Error, ErrorKind, Result, Swap, Swapped};

/// The answers so far.
pub(super) struct Answers {
    by_place: Vec<Option<Swapped>>,
    /// The first failure that was about a statement, and not about one record.
    failure: Option<Error>,
    /// Whether a statement was answered.
    answered: bool,
}

impl Answers {
    /// Of a batch. Records with more bytes than a row can have are refused here, before they fail others.
    pub(super) fn new(batch: &[Swap], record_bytes_max: usize) -> Self {
        let refused = |swap: &Swap| too_large(swap, record_bytes_max).map(Swapped::Failed);
        let by_place: Vec<Option<Swapped>> = batch.iter().map(refused).collect();
        let answered = by_place.iter().any(Option::is_some);
        Self { by_place, failure: None, answered }
    }

    /// The places in the batch that have no answer yet.
    pub(super) fn open(&self) -> Vec<usize> {
        (0..self.by_place.len()).filter(|place| self.by_place[*place].is_none()).collect()
    }

    /// What became of the statement that was about these places.
    pub(super) fn add(&mut self, of: &[usize], answers: Result<Vec<(usize, Swapped)>>) {
        if of.is_empty() {
            return;
        }
        match answers {
            Ok(answers) => {
                for (place, swapped) in answers {
                    self.answered = true;
                    self.by_place[place] = Some(swapped);
                }
            }
            Err(error) => {
                for place in of {
                    self.by_place[*place] = Some(Swapped::Failed(error.clone()));
                }
                self.failure.get_or_insert(error);
            }
        }
    }

    /// One answer for each swap; or the failure of all of them.
    pub(super) fn result(self) -> Result<Vec<Swapped>> {
        match self.failure {
            Some(error) if !self.answered => {
                let may_stand = |answer: &Option<Swapped>| matches!(answer, Some(Swapped::Failed(error)) if error.applied() == onceward::Applied::Maybe);
                Err(if self.by_place.iter().any(may_stand) { error.maybe_applied() } else { error })
            }
            _ => Ok(self
                .by_place
                .into_iter()
                .map(|answer| answer.expect("every place was answered"))
                .collect()),
        }
    }
}

/// Why a record cannot be written, if it has more bytes than fit.
pub(super) fn too_large(swap: &Swap, record_bytes_max: usize) -> Option<Error> {
    let len = swap.new.as_ref().map_or(0, |new| new.bytes.len());
    (len > record_bytes_max).then(|| {
        let detail = format!("a receipt of {len} bytes is too large; this store takes {record_bytes_max}");
        Error::new(ErrorKind::Invalid, detail)
    })
}

#[cfg(test)]
#[path = "answers_test.rs"]
mod tests;
