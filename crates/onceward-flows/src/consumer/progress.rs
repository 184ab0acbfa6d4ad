//! How far a partition is handled. Pure.

use std::collections::BTreeSet;

/// Positions that were read and are not handled, and the last one that was read.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    open: BTreeSet<i64>,
    last: i64,
}

impl Progress {
    pub(crate) fn after(position: i64) -> Self {
        Self { open: BTreeSet::new(), last: position }
    }

    pub(crate) fn read(&mut self, position: i64) {
        self.open.insert(position);
        self.last = self.last.max(position);
    }

    pub(crate) fn handled(&mut self, position: i64) {
        self.open.remove(&position);
    }

    /// How many were read and are not handled.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether everything that was read is handled.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Everything up to here is handled.
    pub(crate) fn position(&self) -> i64 {
        self.open.first().map_or(self.last, |first| first - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_before_the_first_that_is_not_handled() {
        let mut progress = Progress::after(10);
        assert_eq!(progress.position(), 10);
        for position in [12, 15, 16] {
            progress.read(position);
        }
        assert_eq!(progress.position(), 11);
        progress.handled(15);
        assert_eq!(progress.position(), 11, "12 is still open");
        assert_eq!(progress.open(), 2);
        progress.handled(12);
        assert_eq!(progress.position(), 15);
        progress.handled(16);
        assert_eq!(progress.position(), 16);
    }
}
