//! A set of slot numbers, one bit each: cheap to change, and iteration skips long runs of absent numbers.

const BITS: usize = u64::BITS as usize;

#[derive(Default)]
pub(crate) struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    pub(crate) fn insert(&mut self, slot: u32) {
        let (word, bit) = split(slot);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let (word, bit) = split(slot);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    /// The lowest number in the set that is at least `from`.
    pub(crate) fn first_from(&self, from: usize) -> Option<usize> {
        let (first, skipped) = (from / BITS, from % BITS);
        let masked =
            |(at, word): (usize, &u64)| (at, if at == first { word & (!0 << skipped) } else { *word });
        let words = self.words.iter().enumerate().skip(first).map(masked);
        let (at, word) = words.into_iter().find(|(_, word)| *word != 0)?;
        Some(at * BITS + word.trailing_zeros() as usize)
    }
}

fn split(slot: u32) -> (usize, u64) {
    let slot = slot as usize;
    (slot / BITS, 1 << (slot % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_inserted_and_not_removed() {
        let mut set = BitSet::default();
        for slot in [0, 63, 64, 1_000, 1_001] {
            set.insert(slot);
        }
        set.remove(64);
        set.remove(50_000);
        let walked = std::iter::successors(set.first_from(0), |at| set.first_from(at + 1));
        assert_eq!(walked.collect::<Vec<_>>(), [0, 63, 1_000, 1_001]);
        assert_eq!(set.first_from(1_002), None);
        assert_eq!(set.first_from(usize::MAX), None);
    }
}
