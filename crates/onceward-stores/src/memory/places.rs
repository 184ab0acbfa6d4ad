//! A set of numbered places, one bit each: changing it costs nothing, and walking it skips what is not in it.

const BITS: usize = u64::BITS as usize;

#[derive(Default)]
pub(crate) struct Places {
    words: Vec<u64>,
}

impl Places {
    pub(crate) fn insert(&mut self, place: u32) {
        let (word, bit) = split(place);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    pub(crate) fn remove(&mut self, place: u32) {
        let (word, bit) = split(place);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
    }

    /// The first place in it that is not before `from`.
    pub(crate) fn first_from(&self, from: usize) -> Option<usize> {
        let (first, skipped) = (from / BITS, from % BITS);
        let masked =
            |(at, word): (usize, &u64)| (at, if at == first { word & (!0 << skipped) } else { *word });
        let words = self.words.iter().enumerate().skip(first).map(masked);
        let (at, word) = words.into_iter().find(|(_, word)| *word != 0)?;
        Some(at * BITS + word.trailing_zeros() as usize)
    }
}

fn split(place: u32) -> (usize, u64) {
    let place = place as usize;
    (place / BITS, 1 << (place % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_set_that_was_put_in() {
        let mut places = Places::default();
        for place in [0, 63, 64, 1_000, 1_001] {
            places.insert(place);
        }
        places.remove(64);
        places.remove(50_000);
        let walked = std::iter::successors(places.first_from(0), |at| places.first_from(at + 1));
        assert_eq!(walked.collect::<Vec<_>>(), [0, 63, 1_000, 1_001]);
        assert_eq!(places.first_from(1_002), None);
        assert_eq!(places.first_from(usize::MAX), None);
    }
}
