//! Why a message was not handled, and what follows from it. The decision is pure.

use std::sync::Arc;

/// Why a handler did not handle a message. Any error becomes a transient failure through `?`.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    error: Arc<dyn std::error::Error + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Transient,
    Early,
    Permanent,
}

impl Failure {
    /// Trying again may help: the message is tried as often as the consumer's options say, then it is a dead letter.
    pub fn transient(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Transient, error: Arc::from(error.into()) }
    }

    /// The message has come before one that it needs, which may have the same ordering key: it is tried again like after a
    /// transient failure, and until then later messages of its key go ahead of it.
    pub fn early(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Early, error: Arc::from(error.into()) }
    }

    /// Trying again cannot help: the message is a dead letter at once.
    pub fn permanent(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: FailureKind::Permanent, error: Arc::from(error.into()) }
    }

    /// Returns whether trying again cannot help.
    pub fn is_permanent(&self) -> bool {
        self.kind == FailureKind::Permanent
    }

    /// Whether later messages of its ordering key may go ahead.
    pub fn is_early(&self) -> bool {
        self.kind == FailureKind::Early
    }

    pub(super) fn panicked() -> Self {
        Self::transient("the handler panicked")
    }

    pub(super) fn error(&self) -> &Arc<dyn std::error::Error + Send + Sync> {
        &self.error
    }
}

// Like `Stopped`, this type is deliberately not an `Error` itself: otherwise `?` could not convert every error.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::transient(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

/// The treatment of a message whose tries are used up.
///
/// It is about failures of the handler. A message that cannot be given to it (malformed, of an unknown topic), one with the
/// id of another, and one that has ended its process five times are dead letters under each policy: with `Block` as with
/// `Park`, because no further try would help, or the next one would end another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDead {
    /// It is a dead letter, and later messages of its ordering key queue up behind it, in order.
    #[default]
    Park,
    /// It is retried until it succeeds, and later messages of its ordering key wait. When too many wait, the partition
    /// waits. (For
    /// failures of the handler: see above.)
    Block,
    /// It is a dead letter, and later messages of its ordering key are handled without it.
    Skip,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    TryAgain,
    Bury,
}

/// `tries` are those that have failed, this one included.
pub(crate) fn after_failure(is_permanent: bool, tries: u32, tries_max: u32, on_dead: OnDead) -> AfterFailure {
    match on_dead {
        OnDead::Block => AfterFailure::TryAgain,
        OnDead::Park | OnDead::Skip if is_permanent || tries >= tries_max => AfterFailure::Bury,
        OnDead::Park | OnDead::Skip => AfterFailure::TryAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::AfterFailure::{Bury, TryAgain};
    use super::OnDead::{Block, Park, Skip};
    use super::*;

    #[test]
    fn what_follows_a_failure() {
        let rows = [
            // permanent, tries, policy, what follows
            (false, 1, Park, TryAgain),
            (false, 4, Park, TryAgain),
            (false, 5, Park, Bury),
            (true, 1, Park, Bury),
            (false, 4, Skip, TryAgain),
            (false, 5, Skip, Bury),
            (true, 1, Skip, Bury),
            (false, 500, Block, TryAgain),
            (true, 1, Block, TryAgain),
        ];
        for (is_permanent, tries, on_dead, expected) in rows {
            assert_eq!(
                after_failure(is_permanent, tries, 5, on_dead),
                expected,
                "{is_permanent} {tries} {on_dead:?}"
            );
        }
    }
}
