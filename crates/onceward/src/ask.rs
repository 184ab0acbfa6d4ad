//! One caller's request to have an intent carried out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::policy::Policy;
use crate::receipt::Attempt;

/// One request to have an intent carried out: its id, the fingerprint of what is asked, and the policy.
#[derive(Clone, Debug)]
pub struct Ask {
    pub(crate) id: Id,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) also: Vec<Fingerprint>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) attempt: Option<Attempt>,
    /// Whether the attempt was named by the caller, who may use it again.
    pub(crate) named: bool,
    /// Whether the memory of this process was just asked, and has no answer.
    pub(crate) not_cached: bool,
    pub(crate) input: Option<Bytes>,
    pub(crate) delay: Duration,
}

impl Ask {
    /// Asks for `id`, as described by `fingerprint`, under `policy`. Keep the policy in one `Arc` per
    /// kind of operation.
    pub fn new(id: Id, fingerprint: Fingerprint, policy: impl Into<Arc<Policy>>) -> Self {
        Self {
            id,
            fingerprint,
            also: Vec::new(),
            policy: policy.into(),
            attempt: None,
            named: false,
            not_cached: false,
            input: None,
            delay: Duration::ZERO,
        }
    }

    /// Adds the same request's fingerprints under older rules or secrets. A receipt written under
    /// those is then still recognised, so an upgrade never turns an honest retry into a refusal.
    pub fn with_older_fingerprints(mut self, older: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.also.extend(older);
        self
    }

    /// Asks under another policy.
    pub fn with_policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Names this try. Only needed by a caller that claims over an unreliable wire: asking again with
    /// the same attempt finds its own claim and not that of another caller. For that reason such a claim is
    /// not released when the future is dropped; its lease expires.
    pub fn with_attempt(mut self, attempt: Attempt) -> Self {
        self.attempt = Some(attempt);
        self.named = true;
        self
    }

    /// Brings along what is asked, to be kept in the receipt: a run that continues with the intent finds it there
    /// ([`Lease::input`](crate::Lease::input)). What is kept already is not replaced.
    ///
    /// An intent with an input is never forgotten before it is done: where another would be free again, it
    /// waits for its next try.
    pub fn with_input(mut self, input: impl Into<Bytes>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Delays the first run by a worker by this long after it was enqueued. `run` does not wait.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Says that [`Onceward::cached_answer`](crate::Onceward::cached_answer) had nothing a moment ago: a run does not look
    /// again first.
    #[doc(hidden)]
    pub fn set_not_cached(&mut self) {
        self.not_cached = true;
    }

    /// Which intent.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The contract.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The fingerprint of the request.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The request, as it is to be kept in the receipt.
    pub fn input(&self) -> Option<&Bytes> {
        self.input.as_ref()
    }

    /// Which try this is, if the caller has named it.
    pub fn attempt(&self) -> Option<Attempt> {
        self.attempt.filter(|_| self.named)
    }

    /// How long after it was enqueued a worker may begin.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Whether a stored fingerprint describes this request, by the rules of the stored one's version.
    pub(crate) fn is_described_by(&self, stored: &Fingerprint) -> bool {
        self.fingerprint == *stored || self.also.contains(stored)
    }
}
