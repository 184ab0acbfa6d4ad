//! Why a message was not handled, and what follows from it. The decision is pure.

use std::sync::Arc;

/// Why a handler did not handle a message. Any error becomes a transient failure through `?`.
#[derive(Clone, Debug)]
pub struct Failure {
    is_permanent: bool,
    error: Arc<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    /// Trying again may help: the message is tried as often as the consumer's options say, then it is a dead letter.
    pub fn transient(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { is_permanent: false, error: Arc::from(error.into()) }
    }

    /// Trying again cannot help: the message is a dead letter at once.
    pub fn permanent(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { is_permanent: true, error: Arc::from(error.into()) }
    }

    /// Whether trying again cannot help.
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }

    pub(super) fn error(&self) -> &Arc<dyn std::error::Error + Send + Sync> {
        &self.error
    }
}

// Like `Stopped`, this type is deliberately not an `Error` itself: only so can `?` take any.
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

/// What a consumer does with a message whose tries are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDead {
    /// It is a dead letter, and later messages of its ordering key queue up behind it, in order.
    #[default]
    Park,
    /// It is tried on and on, and later messages of its ordering key wait. When too many wait, the partition waits.
    Block,
    /// It is a dead letter, and later messages of its ordering key are handled without it.
    Skip,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFailure {
    TryAgain,
    Bury,
}

/// `tries` are those that have failed, this one included.
pub(super) fn after_failure(is_permanent: bool, tries: u32, tries_max: u32, on_dead: OnDead) -> AfterFailure {
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
