//! Broken completers: what is begun and left is not finished, or is finished over somebody's head.

/// What is wrong with the completers of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleterFlaw {
    /// Nothing.
    None,
    /// They are announced and never look.
    NeverLook,
    /// They claim what they found by its key alone, whoever has it by then.
    ClaimByKeyAlone,
}
