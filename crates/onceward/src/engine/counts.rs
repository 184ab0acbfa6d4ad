//! What the engine has seen, as plain counters that anyone can export.

crate::counters! {
    /// Batches sent to the store.
    store_batches,
    /// Swaps in those batches.
    store_swaps,
    /// Loads sent to the store.
    store_loads,
    /// Calls to the store that failed.
    store_errors,
    /// Claims won.
    claims,
    /// Claims won in the place of a former owner, of what waited, or of an expired receipt.
    takeovers,
    /// Outcomes recorded.
    completions,
    /// Outcomes that could not be recorded at the first try; their callers were answered all the same.
    completions_delayed,
    /// Outcomes that were never recorded: under `Retry`, the lease ended before the store came back.
    completions_given_up,
    /// Answers given from a recorded outcome.
    replays,
    /// Of those, answered from this process's memory.
    replays_cached,
    /// Duplicates that waited for a run in this process.
    waits_local,
    /// Waits for a run in another process.
    waits_remote,
    /// Refusals of any kind.
    refusals,
    /// Leases renewed.
    renewals,
    /// Leases lost while the work ran; the work was cancelled.
    leases_lost,
    /// Writes of a former owner that came too late and changed nothing.
    fenced_off,
    /// Receipts that became unknown.
    unknowns,
    /// Intents enqueued for workers.
    enqueued,
    /// Receipts that became dead: their tries were used up.
    buried,
    /// Receipts closed: cancelled, discarded or undone.
    closed,
    /// Receipts given up so that the next ask runs.
    releases,
    /// Bodies over the bound, not stored.
    bodies_omitted,
    /// Receipts erased by hand, steps included.
    erased,
    /// Receipts removed by sweeping.
    swept,
}
