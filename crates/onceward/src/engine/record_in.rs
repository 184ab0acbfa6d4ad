//! Records intents that are done in the transaction of a caller, without a claim of their own before: for several at a
//! time. A claim and its outcome that become visible with the same commit are one write.

use super::finish::bounded;
use super::inner::Inner;
use super::sealed::seal;
use super::transact::check_store;
use crate::ask::Ask;
use crate::decide::Takeover;
use crate::error::{Error, ErrorKind, Result};
use crate::join::Join;
use crate::outcome::Outcome;
use crate::receipt::{Attempt, Owner};
use crate::store::{Seen, Swap, Swapped};
use crate::transition::{self, Finish};

/// Records the outcome of each ask that has no receipt, and says which ones that are.
pub(crate) async fn record_in<J: Join + ?Sized>(
    inner: &Inner,
    tx: &mut J,
    asks: &[Ask],
    outcome: &Outcome,
) -> Result<Vec<bool>> {
    check_store(inner)?;
    if asks.is_empty() {
        return Ok(Vec::new());
    }
    // A batch is sorted by id and names no id twice ([`Join::swap`]), whatever the order of the caller is.
    let mut order: Vec<usize> = (0..asks.len()).collect();
    order.sort_by(|a, b| asks[*a].id.cmp(&asks[*b].id));
    if order.windows(2).any(|pair| asks[pair[0]].id == asks[pair[1]].id) {
        return Err(Error::invalid("an intent is named twice; each can be recorded once"));
    }
    let swaps = order.iter().map(|at| done(inner, &asks[*at], outcome)).collect::<Result<Vec<Swap>>>()?;
    let swapped = tx.swap(&swaps).await?;
    if swapped.len() != swaps.len() {
        let detail = "the transaction gave another number of answers than swaps";
        return Err(Error::new(ErrorKind::Damaged, detail));
    }
    let mut recorded = vec![false; asks.len()];
    for (at, swapped) in order.into_iter().zip(swapped) {
        recorded[at] = match swapped {
            Swapped::Won(_) => {
                inner.counters.claimed(false);
                inner.counters.completions.one();
                true
            }
            Swapped::Lost(_) => false,
            Swapped::Failed(error) => return Err(error),
        };
    }
    Ok(recorded)
}

fn done(inner: &Inner, ask: &Ask, outcome: &Outcome) -> Result<Swap> {
    if ask.input.is_some() {
        return Err(Error::invalid("an intent that is recorded as done has no input to keep"));
    }
    let ending = Finish::of(bounded(inner, outcome, 0), &ask.policy);
    if !matches!(ending, Finish::Done(_)) {
        return Err(Error::invalid(
            "this outcome is not kept under the policy of the ask, so it is not recorded",
        ));
    }
    let attempt = ask.attempt.unwrap_or_else(|| Attempt(inner.runtime.random()));
    // Its fence is the version that this write gets.
    let held = transition::claim(ask, attempt, Owner::Run, Takeover::Absent, None);
    let write = transition::end(&ask.id, &held, &ending, &ask.policy);
    Ok(seal(&ask.id, Seen::Absent, write.as_ref()))
}
