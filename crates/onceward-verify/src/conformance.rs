//! The conformance suite: one call runs every check on a store.
//!
//! The checks are the sentences of the [`Store`] docs, one by one. They use real threads and the store's
//! own clock, and they wait for things to happen instead of hoping that a sleep was long enough.
//!
//! | suite | for | the author brings |
//! |---|---|---|
//! | [`run`] | every store | a fresh store for each check |
//! | [`transactions()`] | every [`onceward::Transactions`] | a [`Harness`]: its store, and a table of counters |
//! | [`unreadable()`] | stores whose records can be damaged | a [`Damage`]: a way to damage a record |
//!
//! Together they are the definition of done of a new store or driver. What they cannot see needs a test that
//! ends a process: durability, and [`Record::ends_with_writer`](onceward::Record::ends_with_writer) after a
//! restart.

mod ages;
mod batches;
mod bodies;
mod drops;
mod due;
mod ids;
mod loads;
mod mangled;
mod races;
mod scan_due;
mod scan_matching;
mod scan_steps;
mod signals;
mod swaps;
mod takes;
mod transactions;
mod trial;
mod unreadable;
mod versions;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Caps, Store};

use trial::{Checked, Trial, Wrong};

pub use transactions::{Harness, Tx, first_transaction_failure, transaction_failures, transactions};
pub use unreadable::{Damage, unreadable, unreadable_failures};

/// No check may take longer: a store that wedges is reported like any other that is wrong.
const CHECK_DEADLINE: Duration = Duration::from_mins(3);

/// One check: its name, and what it does to the fresh subject that it is given.
struct Check<S> {
    name: &'static str,
    run: fn(S) -> Pin<Box<dyn Future<Output = Checked> + Send>>,
}

macro_rules! table {
    ($($topic:ident: $($check:ident)+;)+) => {
        &[$($(Check {
            name: concat!(stringify!($topic), "::", stringify!($check)),
            run: |trial| Box::pin($topic::$check(trial)),
        },)+)+]
    };
}

/// Every check there is. A check that is missing here is dead code, and the compiler says so.
const CHECKS: &[Check<Trial>] = table! {
    swaps:
        caps_are_as_announced
        caps_are_usable
        absent_is_created_once
        version_is_replaced_once
        absent_record_has_no_version
        strange_versions_lose
        removal_needs_the_version
        nothing_for_nothing_is_a_look
        losing_changes_nothing
        every_state_is_kept;
    versions:
        grow_with_every_write
        grow_across_removal
        grow_across_bursts_and_removal
        old_version_loses_to_a_new_record;
    batches:
        empty_batch_is_answered
        one_batch_has_winners_and_losers
        largest_batch_is_answered_in_order
        batches_overlap;
    loads:
        absent_is_none
        empty_load_is_answered
        order_is_as_asked
        an_id_may_be_asked_twice
        a_swap_is_seen_at_once;
    due:
        counts_down
        never_is_never
        zero_is_over_at_once
        far_future_is_kept
        falls_over_and_counts_up
        is_stamped_by_every_write
        loser_learns_what_remains
        with_its_writer_is_not_earlier_while_that_lives
        over_changes_nothing_else;
    scan_due:
        nothing_due_is_empty
        earliest_comes_first
        only_what_is_due
        reads_only_what_is_due
        cursor_goes_on
        sweep_beside_removal
        removed_and_renewed_do_not_show
        by_state
        by_state_earliest_comes_first
        by_state_reads_only_that_state
        by_state_follows_every_write;
    takes:
        only_what_is_due_in_that_state
        earliest_of_more_than_the_limit
        what_is_chosen_is_written
        each_record_goes_to_one_taker
        a_dropped_take_wedges_nothing;
    scan_matching:
        empty_store_is_empty
        each_filter_filters
        filters_are_exact
        prefixes_are_exact
        open_states_are_found_beside_done_ones
        a_changed_state_is_found_under_the_new_one
        pages_cover_everything_once
        pages_cover_beside_other_writes
        found_is_as_loaded;
    scan_steps:
        only_those_directly_below
        of_an_absent_parent
        pages_cover_each_once
        follow_every_write;
    ages:
        begin_at_zero_and_grow
        survive_updates
        begin_again_after_removal
        do_not_begin_again_when_a_swap_loses
        are_the_same_in_scans;
    ids:
        at_their_bounds
        of_all_printable_characters
        that_differ_in_case_and_blanks
        that_would_collide_if_joined
        of_steps;
    bodies:
        of_every_size
        of_every_byte
        large_ones_in_one_batch
        one_that_is_too_large_harms_no_other;
    drops:
        a_dropped_claim_happened_or_not
        a_dropped_claim_goes_on_where_the_store_batches
        a_dropped_write_happened_or_not
        a_dropped_batch_wedges_nothing;
    races:
        one_claim_wins
        one_step_wins
        batches_lose_no_update
        a_claim_excludes_all_others;
    signals:
        come_after_swaps
        change_speed_and_nothing_else
        hints_change_speed_and_nothing_else;
};

/// One check that a store did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedCheck {
    /// Which check.
    pub check: &'static str,
    /// The failure, in one sentence.
    pub wrong: String,
}

impl fmt::Display for FailedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.wrong)
    }
}

/// Runs every check and panics with a list of those that failed.
///
/// `make` gives a fresh and empty store each time; for a server that is shared, a fresh namespace. `caps`
/// is what the store is expected to promise. Needs a tokio runtime, whichever flavour.
pub async fn run<M, F>(make: M, caps: Caps)
where
    M: Fn() -> F,
    F: Future<Output = onceward::Result<Arc<dyn Store>>>,
{
    let failures = failures(make, caps).await;
    panic_on_failures(&format!("store `{}`", caps.name), &failures, CHECKS.len());
}

/// Runs every check and returns those that failed. For tests that expect some to.
pub async fn failures<M, F>(make: M, caps: Caps) -> Vec<FailedCheck>
where
    M: Fn() -> F,
    F: Future<Output = onceward::Result<Arc<dyn Store>>>,
{
    let mut failures = Vec::new();
    for check in CHECKS {
        failures.extend(failure_of(check, &make, caps).await);
    }
    failures
}

/// Runs the checks until one fails. For broken stores, where one is enough.
pub async fn first_failure<M, F>(make: M, caps: Caps) -> Option<FailedCheck>
where
    M: Fn() -> F,
    F: Future<Output = onceward::Result<Arc<dyn Store>>>,
{
    for check in CHECKS {
        if let Some(failure) = failure_of(check, &make, caps).await {
            return Some(failure);
        }
    }
    None
}

async fn failure_of<M, F>(check: &Check<Trial>, make: &M, caps: Caps) -> Option<FailedCheck>
where
    M: Fn() -> F,
    F: Future<Output = onceward::Result<Arc<dyn Store>>>,
{
    let checked = match make().await {
        Ok(store) => one(check, Trial { store, caps }).await,
        Err(error) => Err(Wrong(format!("no store to check: {error:?}"))),
    };
    checked.err().map(|Wrong(wrong)| FailedCheck { check: check.name, wrong })
}

/// In a task of its own, so that a panic in what is checked is a failed check with a name.
async fn one<S: Send + 'static>(check: &Check<S>, subject: S) -> Checked {
    let task = tokio::spawn(tokio::time::timeout(CHECK_DEADLINE, (check.run)(subject)));
    match task.await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_)) => Err(Wrong(format!("did not end within {CHECK_DEADLINE:?}"))),
        Err(panic) => Err(Wrong(format!("panicked: {panic}"))),
    }
}

/// Panics with a list of what failed, if anything did.
fn panic_on_failures(subject: &str, failures: &[FailedCheck], checks: usize) {
    if failures.is_empty() {
        return;
    }
    let list: Vec<String> = failures.iter().map(|failure| format!("  {failure}")).collect();
    panic!("{subject} failed {} of {checks} checks:\n{}", failures.len(), list.join("\n"));
}
