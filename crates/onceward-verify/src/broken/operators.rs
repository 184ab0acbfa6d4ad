//! Broken operators: people and scripts that decide about doubts and dead letters.

/// What is wrong with the operators of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorFlaw {
    /// Nothing.
    None,
    /// They say that it did not happen, by force, without waiting for what may still be on its way.
    SettlesBeforeLateEffects,
}
