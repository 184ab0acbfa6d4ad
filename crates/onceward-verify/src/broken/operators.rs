//! Broken operators: people and scripts that settle unknown outcomes and dead letters.

/// A flaw of the operators of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorFlaw {
    /// Nothing.
    None,
    /// They force "not done" without waiting for an effect that may still be on its way.
    SettlesBeforeLateEffects,
    /// They remove an unknown outcome without waiting for an effect that may still be on its way.
    ForgetsBeforeLateEffects,
    /// To have something begin now, they write its record again, with its tries at zero.
    StartsNowFromTheBeginning,
    /// They leave the key out of what is to be erased.
    ErasesMoreThanWanted,
}
