//! Broken transaction drivers: writes that must commit together do not, or overwrite the claim of another run.

/// A flaw of the transactions of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionFlaw {
    /// Nothing.
    None,
    /// Claims lock nothing, and completions are written whatever is there.
    CompletesWithoutVersion,
    /// The business writes are committed first, and the receipt behind them.
    CommitsBusinessFirst,
    /// A receipt that is written as done, and finds another one there, counts as written.
    ConflictIsNoLoss,
    /// A commit whose answer was lost is reported as one that did not happen.
    LostCommitIsNotApplied,
    /// What is enqueued in the transaction is committed at once.
    EnqueuesAtOnce,
    /// What is closed in the transaction is committed at once.
    ClosesAtOnce,
    /// What is recorded as done is written whatever is there.
    RecordsOverWhatIsThere,
}
