//! Broken workers: they do not run a task, run one that another worker holds, or run one too early.

/// A flaw of the workers of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerFlaw {
    /// Nothing.
    None,
    /// They are announced and never look.
    NeverLook,
    /// They claim what they found by its key alone, also when another has it by then.
    ClaimByKeyAlone,
    /// They begin what somebody else holds.
    BeginWhatIsHeld,
    /// They begin what is to be begun later.
    BeginTooEarly,
    /// Callers that select intents themselves resume them by their key alone, also when another has them by then.
    ResumesByKeyAlone,
}
