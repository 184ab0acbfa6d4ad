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
    let swaps = asks.iter().map(|ask| done(inner, ask, outcome)).collect::<Result<Vec<Swap>>>()?;
    if swaps.is_empty() {
        return Ok(Vec::new());
    }
    let swapped = tx.swap(&swaps).await?;
    if swapped.len() != swaps.len() {
        let detail = "the transaction gave another number of answers than swaps";
        return Err(Error::new(ErrorKind::Damaged, detail));
    }
    let recorded = swapped.into_iter().map(|swapped| match swapped {
        Swapped::Won(_) => {
            inner.counters.claimed(false);
            inner.counters.completions.one();
            Ok(true)
        }
        Swapped::Lost(_) => Ok(false),
        Swapped::Failed(error) => Err(error),
    });
    recorded.collect()
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
