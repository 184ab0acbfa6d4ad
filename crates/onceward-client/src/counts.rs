//! The counters of a client or layer, to be exported as metrics.

onceward::counters! {
    /// Calls that were begun.
    calls,
    /// Tries that were sent.
    tries,
    /// Of those, retries.
    retries,
    /// Tries without a whole answer.
    tries_failed,
    /// Calls that ended because the retry budget of the host allowed no retry before their deadline.
    stopped_by_budget,
    /// Calls that were not sent, or not again, because the circuit breaker of the host was open.
    stopped_by_breaker,
    /// Calls that ended because of their deadline or their maximum number of tries.
    stopped_by_limits,
    /// Calls whose outcome is unknown.
    unknown,
    /// Answers that the server replayed from an earlier try.
    replays,
    /// Answers from the client's own journal.
    replays_from_journal,
    /// Requests written to the journal.
    journaled,
    /// Requests that another process had left open and that were resumed.
    resumed,
    /// Unknown outcomes that were settled.
    settled,
}
