//! The builder of the limits. Setters take any value; [`AdmissionBuilder::build`] checks all of them.

use std::num::NonZeroU32;
use std::time::Duration;

use onceward::{Error, ErrorKind, Result};

use super::Admission;
use crate::new_keys::NewKeys;

/// Builds an [`Admission`]. See [`Admission::builder`].
#[derive(Debug)]
#[must_use = "a builder changes nothing until `build` is called"]
pub struct AdmissionBuilder {
    admission: Admission,
}

impl AdmissionBuilder {
    pub(super) fn new() -> Self {
        Self { admission: Admission::default() }
    }

    /// Sets how many intents may run at once.
    pub fn with_running_max(mut self, intents: usize) -> Self {
        self.admission.running_max = intents;
        self
    }

    /// Sets how many intents of one scope may run at once.
    pub fn with_running_per_scope_max(mut self, intents: usize) -> Self {
        self.admission.running_per_scope_max = Some(intents);
        self
    }

    /// Sets how many intents of one [`ClientAddress`](super::ClientAddress) may run at once.
    pub fn with_running_per_address_max(mut self, intents: usize) -> Self {
        self.admission.running_per_address_max = Some(intents);
        self
    }

    /// Sets how many guarded requests may wait for a run or be looked up in the store at once. As many again are looked up
    /// without waiting.
    pub fn with_answering_max(mut self, requests: usize) -> Self {
        self.admission.answering_max = Some(requests);
        self
    }

    /// Sets how many bytes of request bodies may be in memory at once.
    pub fn with_body_bytes_max(mut self, bytes: usize) -> Self {
        self.admission.body_bytes_max = bytes;
        self
    }

    /// Sets how many bytes of request bodies of one [`ClientAddress`](super::ClientAddress) may be in memory at once.
    pub fn with_body_bytes_per_address_max(mut self, bytes: usize) -> Self {
        self.admission.body_bytes_per_address_max = Some(bytes);
        self
    }

    /// Sets how many new keys one scope may begin within a time.
    pub fn with_new_keys_per_scope_max(mut self, keys: NonZeroU32, within: Duration) -> Self {
        self.admission.new_keys_per_scope = Some(NewKeys::new(keys, within));
        self
    }

    /// Sets how many new keys one [`ClientAddress`](super::ClientAddress) may begin within a time.
    pub fn with_new_keys_per_address_max(mut self, keys: NonZeroU32, within: Duration) -> Self {
        self.admission.new_keys_per_address = Some(NewKeys::new(keys, within));
        self
    }

    /// Checks the limits. [`ErrorKind::Invalid`] if a limit of requests or intents is zero: it would refuse every one.
    pub fn build(self) -> Result<Admission> {
        let Self { admission } = self;
        let limits = [
            ("running_max", Some(admission.running_max)),
            ("running_per_scope_max", admission.running_per_scope_max),
            ("running_per_address_max", admission.running_per_address_max),
            ("answering_max", admission.answering_max),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            None => Ok(admission),
            Some((name, _)) => {
                let why = "must be at least 1: a limit of zero would refuse everything";
                Err(Error::new(ErrorKind::Invalid, format!("admission: {name} {why}")))
            }
        }
    }
}
