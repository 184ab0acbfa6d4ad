//! Broken workers: what waits is not done, or is done over somebody's head, or too early.

/// What is wrong with the workers of a world.
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
}
