//! Every bound of the engine, by name and with its reason.

use crate::error::{Error, Result};

/// The bounds of one engine. What goes beyond is refused or downgraded in a defined way, never piled
/// up. (The parts of an id have bounds of their own, see [`Id`](crate::Id).)
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Claims waiting for a place in a batch. A queue that is longer than the store can clear in
    /// about a second only adds latency; beyond it a claim fails with `Overloaded`. Completions are
    /// never refused: there are no more of them than claims, and their effect has already happened.
    pub queue_claims_max: usize,
    /// Swaps in one batch: enough to make the cost of a sync or round trip negligible, few enough for
    /// one statement of any database.
    pub batch_swaps_max: usize,
    /// Bytes of receipts in one batch, so that a batch of large bodies does not become one huge
    /// statement. A single larger swap is sent alone.
    pub batch_bytes_max: usize,
    /// Duplicates waiting in this process, over all ids. Each holds a task and often a connection;
    /// one more is told `InProgress` at once.
    pub waiters_max: usize,
    /// Bytes of done receipts cached for replays.
    pub cache_bytes_max: usize,
    /// Bytes of one outcome's body. A larger one is not stored: its first caller gets it, a retry
    /// gets `ResponseNotStored`. So is one that does not fit into a record of the store together with the input that is
    /// kept with it ([`KeepInput::WithReceipt`](crate::KeepInput::WithReceipt)).
    pub body_bytes_max: usize,
    /// Bytes of one input that is kept in a receipt. A larger one is an error before anything happens.
    pub input_bytes_max: usize,
    /// Bytes of outcomes that were reached while the store was away, over all ids. Beyond that their bodies are
    /// not stored; the outcomes are.
    pub unrecorded_bytes_max: usize,
    /// Claims that must be released, because their work never began. Claims beyond that are not released: their leases
    /// expire.
    pub owed_releases_max: usize,
}

impl Limits {
    /// Sets how many claims may wait for a place in a batch.
    pub fn with_queue_claims_max(mut self, claims: usize) -> Self {
        self.queue_claims_max = claims;
        self
    }

    /// Sets how many swaps are in one batch.
    pub fn with_batch_swaps_max(mut self, swaps: usize) -> Self {
        self.batch_swaps_max = swaps;
        self
    }

    /// Sets how many bytes of receipts are in one batch.
    pub fn with_batch_bytes_max(mut self, bytes: usize) -> Self {
        self.batch_bytes_max = bytes;
        self
    }

    /// Sets how many duplicates may wait in this process.
    pub fn with_waiters_max(mut self, waiters: usize) -> Self {
        self.waiters_max = waiters;
        self
    }

    /// Sets how many bytes of done receipts are cached for replays.
    pub fn with_cache_bytes_max(mut self, bytes: usize) -> Self {
        self.cache_bytes_max = bytes;
        self
    }

    /// Sets the largest body of an outcome that is stored, in bytes.
    pub fn with_body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// Sets the largest input that is kept in a receipt, in bytes.
    pub fn with_input_bytes_max(mut self, bytes: usize) -> Self {
        self.input_bytes_max = bytes;
        self
    }

    /// Sets how many bytes of outcomes may wait for a store that is away.
    pub fn with_unrecorded_bytes_max(mut self, bytes: usize) -> Self {
        self.unrecorded_bytes_max = bytes;
        self
    }

    /// Sets how many claims that must be released are remembered.
    pub fn with_owed_releases_max(mut self, claims: usize) -> Self {
        self.owed_releases_max = claims;
        self
    }
}

/// Largest bound for a body that makes sense: receipts are for answers, not for files, and a receipt
/// passes through memory whole.
const BODY_BYTES_MAX: usize = 1 << 30;

/// What a receipt has besides a body and an input (claim, note, lengths), with a margin.
const RECORD_OVERHEAD_BYTES: usize = 1_024;

/// The bytes that a store's own bound on a record leaves for a body and an input together.
pub(crate) fn content_bytes_max(record_bytes_max: usize) -> usize {
    record_bytes_max.saturating_sub(RECORD_OVERHEAD_BYTES)
}

impl Limits {
    /// Bounds that the store's own bound on a record allows.
    pub(crate) fn clamped(mut self, record_bytes_max: usize) -> Self {
        let available = content_bytes_max(record_bytes_max);
        self.body_bytes_max = self.body_bytes_max.min(available);
        self.input_bytes_max = self.input_bytes_max.min(available);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.batch_swaps_max == 0 || self.queue_claims_max == 0 {
            return Err(Error::invalid(
                "a queue or batch of at most 0 would let nothing through; at least 1 is needed",
            ));
        }
        for (what, bytes) in [("bodies", self.body_bytes_max), ("inputs", self.input_bytes_max)] {
            if bytes > BODY_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "{what} of up to {bytes} bytes cannot be kept; at most {BODY_BYTES_MAX} fit"
                )));
            }
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue_claims_max: 65_536,
            batch_swaps_max: 1_024,
            batch_bytes_max: 4 << 20,
            waiters_max: 65_536,
            cache_bytes_max: 64 << 20,
            body_bytes_max: 1 << 20,
            input_bytes_max: 1 << 20,
            unrecorded_bytes_max: 64 << 20,
            owed_releases_max: 65_536,
        }
    }
}
