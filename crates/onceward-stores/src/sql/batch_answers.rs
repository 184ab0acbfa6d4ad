//! Collects the answers to a batch from the statements that it was split into.
//!
//! Each swap has an answer of its own: if one statement fails, the others still count. Only if no statement was
//! answered does the whole batch fail.

use onceward::{Error, ErrorKind, Result, Swap, Swapped};

/// The answers so far.
pub(super) struct BatchAnswers {
    by_index: Vec<Option<Swapped>>,
    /// The first failure that was about a statement, and not about one record.
    failure: Option<Error>,
    /// Whether a statement was answered.
    answered: bool,
}

impl BatchAnswers {
    /// Of a batch. Records with more bytes than a row can have are refused here, before they fail others.
    pub(super) fn new(batch: &[Swap], record_bytes_max: usize) -> Self {
        let refused = |swap: &Swap| too_large(swap, record_bytes_max).map(Swapped::Failed);
        let by_index: Vec<Option<Swapped>> = batch.iter().map(refused).collect();
        let answered = by_index.iter().any(Option::is_some);
        Self { by_index, failure: None, answered }
    }

    /// The indexes of the swaps that have no answer yet.
    pub(super) fn open(&self) -> Vec<usize> {
        (0..self.by_index.len()).filter(|index| self.by_index[*index].is_none()).collect()
    }

    /// Adds the answers of the statement for the swaps at these indexes.
    pub(super) fn add(&mut self, of: &[usize], answers: Result<Vec<(usize, Swapped)>>) {
        if of.is_empty() {
            return;
        }
        match answers {
            Ok(answers) => {
                for (index, swapped) in answers {
                    self.answered = true;
                    self.by_index[index] = Some(swapped);
                }
            }
            Err(error) => {
                for index in of {
                    self.by_index[*index] = Some(Swapped::Failed(error.clone()));
                }
                self.failure.get_or_insert(error);
            }
        }
    }

    /// One answer for each swap; or the failure of all of them.
    pub(super) fn result(self) -> Result<Vec<Swapped>> {
        match self.failure {
            Some(error) if !self.answered => {
                let maybe_applied = |answer: &Option<Swapped>| matches!(answer, Some(Swapped::Failed(error)) if error.applied() == onceward::Applied::Maybe);
                Err(if self.by_index.iter().any(maybe_applied) { error.maybe_applied() } else { error })
            }
            _ => {
                Ok(self.by_index.into_iter().map(|answer| answer.expect("every swap was answered")).collect())
            }
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
#[path = "batch_answers_test.rs"]
mod tests;
