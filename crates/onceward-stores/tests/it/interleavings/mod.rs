//! Tests of two duplicates, one of which fails at the worst moment: each order of events is forced, on every
//! engine. `transact` has the common ones; here are those in which a second effect would hide.
//!
//! | the first one … | the duplicate … |
//! |---|---|
//! | has its claim undone before the work | runs |
//! | commits, and is not told | replays, before the first one has found out |
//! | is told nothing, and its commit never came | runs, before the first one has found out |
//! | is told nothing, and its commit comes later | waits; neither runs again |
//! | is told nothing, and is undone later | waits; one of them runs |
//! | has ended its own transaction, and then completes | ran meanwhile; the completion loses |
//! | has taken over, and ended its own transaction | takes over as well, with a higher fence; the completion loses |
//! | has committed its own transaction, and goes on or dies | is told to wait, for a lease |
//! | is rolled back, and so is the duplicate | a third one runs |
//! | works | asks for something else: refused, or free to run after a rollback |
//! | is a slow owner whose lease is over | has taken over in a transaction; one of them has the word |

mod ended;
mod lost;
mod staged;

use crate::bank::{Bank, Process, on_every_engine};

on_every_engine!(everything);

async fn everything<B: Bank>(bank: &B) {
    let (one, two) = (Process::new(bank, "one").await, Process::new(bank, "two").await);
    lost::every(bank, &one, &two, "found out").await;
    lost::every(bank, &one.knowing(), &two.knowing(), "known").await;
    lost::every(bank, &one.knowing(), &two, "known by the first").await;
    ended::every(bank, &one, &two).await;
}
