//! Buckets, and the names of keys.

use onceward::{Error, ErrorKind, Id, Result, State};
use xxhash_rust::xxh3::Xxh3;

pub(super) use crate::kit::state_letters::{letter, state};

/// Buckets of a prefix that a cluster divides among its nodes.
pub(super) const BUCKETS_MAX: usize = 256;

/// The names of the keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    channel: String,
    /// How the keys of each bucket begin.
    bases: Vec<String>,
}

impl Keys {
    /// The number of buckets is part of the layout: with another one, nothing that is there would be found.
    pub(super) fn new(prefix: &str, buckets: usize) -> Result<Self> {
        if prefix.is_empty() || prefix.contains(['{', '}']) {
            let detail =
                format!("`{prefix}` is no prefix for keys in Redis; it is not empty and has no braces");
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        let bases = (0..buckets).map(|bucket| format!("{prefix}:{{{bucket}}}:")).collect();
        Ok(Self { prefix: prefix.to_owned(), channel: format!("{prefix}:changed"), bases })
    }

    /// The same prefix, divided into this many buckets.
    pub(super) fn divided(&self, buckets: usize) -> Result<Self> {
        Self::new(&self.prefix, buckets)
    }

    pub(super) fn buckets(&self) -> usize {
        self.bases.len()
    }

    /// The bucket of an id. Steps share scope and key with their intent, and so its bucket.
    pub(super) fn bucket(&self, id: &Id) -> usize {
        if self.bases.len() == 1 {
            return 0;
        }
        let mut hash = Xxh3::new();
        // With a length in between, so that no choice of parts can run into another.
        hash.update(&[u8::try_from(id.scope().len()).expect("a scope is short")]);
        hash.update(id.scope().as_bytes());
        hash.update(id.key().as_bytes());
        usize::try_from(hash.digest() % self.bases.len() as u64).expect("a small number")
    }

    pub(super) fn base(&self, bucket: usize) -> &str {
        &self.bases[bucket]
    }

    pub(super) fn record(&self, id: &Id) -> Vec<u8> {
        [self.base(self.bucket(id)).as_bytes(), b"r:", id.as_bytes()].concat()
    }

    pub(super) fn index(&self, bucket: usize, state: State) -> Vec<u8> {
        [self.base(bucket).as_bytes(), b"i:", &[letter(state)]].concat()
    }

    pub(super) fn steps(&self, parent: &Id) -> Vec<u8> {
        [self.base(self.bucket(parent)).as_bytes(), b"s:", parent.as_bytes()].concat()
    }

    /// In the first bucket.
    pub(super) fn format(&self) -> String {
        format!("{}format", self.base(0))
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }
}

#[cfg(test)]
#[path = "keys_test.rs"]
mod tests;
