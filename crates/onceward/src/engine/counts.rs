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
    /// Claims won in the place of a previous owner, of what waited, or of an expired receipt.
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
    /// Of the replays, answered from the front.
    front_hits,
    /// Asks for which the front had nothing that could be used.
    front_misses,
    /// Asks for which the front had an entry whose seal does not fit.
    front_bad_seals,
    /// Asks that went past the front, because it was slow or failed, or the identity of the store was not known.
    front_bypasses,
    /// Waits on a hint of the front that an intent is being run.
    front_waits,
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
    /// Writes of a previous owner that came too late and changed nothing.
    fenced_off,
    /// Outcomes that contradicted how their run had been settled meanwhile.
    settlements_contradicted,
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

impl Counters {
    /// A claim was won, perhaps over another one.
    pub(crate) fn claimed(&self, took_over: bool) {
        self.claims.one();
        if took_over {
            self.takeovers.one();
        }
    }
}
