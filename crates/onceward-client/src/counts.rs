//! What a client or layer has done, as plain counters that anyone can export.

onceward::counters! {
    /// Calls that were begun.
    calls,
    /// Tries that were sent.
    tries,
    /// Of those, retries.
    retries,
    /// Tries without a whole answer.
    tries_failed,
    /// Calls that ended because the host had had its share of retries.
    stopped_by_budget,
    /// Calls that were not sent, or not again, because the host is left alone.
    stopped_by_breaker,
    /// Calls that ended because their time or their tries were used up.
    stopped_by_terms,
    /// Calls whose outcome nobody can tell.
    unknown,
    /// Answers that the server had from an earlier try.
    replays,
    /// Answers that came from our own journal.
    replays_from_journal,
    /// Requests written to the journal.
    journaled,
    /// Requests that another process had left and that were taken up again.
    resumed,
    /// Doubts that somebody has ended.
    settled,
}
