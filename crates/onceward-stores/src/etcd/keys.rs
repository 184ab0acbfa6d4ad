//! The names of keys.

use onceward::{Error, ErrorKind, Id, Result, State};

use crate::kit::state_letters::letter;

/// Bytes of a due time.
pub(super) const DUE_BYTES: usize = 8;
/// The due time of what never falls due.
pub(super) const NEVER: u64 = u64::MAX;

/// The names of the keys under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Result<Self> {
        if prefix.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a prefix for keys in etcd is not empty"));
        }
        Ok(Self { prefix: prefix.as_bytes().to_vec() })
    }

    pub(super) fn format(&self) -> Vec<u8> {
        self.of(b"format", &[])
    }

    pub(super) fn counted(&self) -> Vec<u8> {
        self.of(b"counted", &[])
    }

    pub(super) fn record(&self, id: &Id) -> Vec<u8> {
        self.of(b"r/", &[id.as_bytes()])
    }

    /// How the index entries of a state begin.
    pub(super) fn index(&self, state: State) -> Vec<u8> {
        self.of(b"i/", &[&[letter(state)]])
    }

    pub(super) fn entry(&self, state: State, due: u64, id: &Id) -> Vec<u8> {
        self.of(b"i/", &[&[letter(state)], &due.to_be_bytes(), id.as_bytes()])
    }

    /// How all index entries begin.
    pub(super) fn entries(&self) -> Vec<u8> {
        self.of(b"i/", &[])
    }

    /// The id in an index entry, as far as it is one.
    pub(super) fn entry_id(&self, key: &[u8]) -> Option<Id> {
        let place = key.strip_prefix(&self.entries()[..])?;
        Id::from_bytes(place.get(1 + DUE_BYTES..)?).ok()
    }

    /// How the entries of the steps of an intent begin. With its length, so that no id is the beginning of another.
    pub(super) fn steps(&self, parent: &Id) -> Vec<u8> {
        let length = u16::try_from(parent.as_bytes().len()).expect("an id is short");
        self.of(b"s/", &[&length.to_be_bytes(), parent.as_bytes()])
    }

    /// The entry of a step among those of its intent; `None` for what is no step.
    pub(super) fn step(&self, id: &Id) -> Option<Vec<u8>> {
        id.parent().map(|parent| [&self.steps(&parent)[..], id.as_bytes()].concat())
    }

    fn of(&self, kind: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        [&self.prefix[..], kind, &parts.concat()].concat()
    }
}

/// The first key behind all that begin like this.
pub(super) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // etcd's word for "to the end".
    vec![0]
}
