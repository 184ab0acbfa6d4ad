//! Makes inputs from other inputs.

use std::ops::Range;

/// Longest input.
const BYTES_MAX: usize = 16 << 10;
/// Changes to one input, at most.
const CHANGES_MAX: usize = 8;
/// Integers at which code goes wrong.
const LIMITS: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX / 2, u64::MAX];

/// A source of inputs: the same seed gives the same sequence.
pub(crate) struct Mutator<'a> {
    state: u64,
    words: &'a [&'a [u8]],
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(seed: u64, words: &'a [&'a [u8]]) -> Self {
        Self { state: seed, words }
    }

    /// Makes the next input from one of these.
    pub(crate) fn make(&mut self, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
        input.clear();
        input.extend_from_slice(&seeds[self.below(seeds.len())]);
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(seeds, input);
        }
        input.truncate(BYTES_MAX);
    }

    fn change(&mut self, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
        let range = self.range(input.len());
        match self.below(10) {
            0 if !input.is_empty() => {
                let at = self.below(input.len());
                input[at] ^= 1 << self.below(8);
            }
            1 if !input.is_empty() => {
                let at = self.below(input.len());
                input[at] = self.byte();
            }
            2 => drop(input.drain(range)),
            3 => {
                let piece = input[range].to_vec();
                self.insert(input, &piece);
            }
            4 => {
                let other = &seeds[self.below(seeds.len())];
                let piece = other[self.range(other.len())].to_vec();
                self.insert(input, &piece);
            }
            5 => self.put_integer(input),
            6 if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())];
                self.insert(input, word);
            }
            7 => input.truncate(range.start),
            8 => {
                // Many of one byte: depth, and lengths beyond a bound.
                let piece = vec![self.byte(); 1 << self.below(11)];
                self.insert(input, &piece);
            }
            _ => {
                let piece: Vec<u8> = (0..=self.below(4)).map(|_| self.byte()).collect();
                self.insert(input, &piece);
            }
        }
    }

    /// Overwrites an integer of some width and order with one at its limits, or near its value.
    fn put_integer(&mut self, input: &mut [u8]) {
        let width = 1 << self.below(4);
        if input.len() < width {
            return;
        }
        let at = self.below(input.len() - width + 1);
        let limit = LIMITS[self.below(LIMITS.len())].wrapping_add(self.below(3) as u64).wrapping_sub(1);
        let bytes = if self.below(2) == 0 { limit.to_le_bytes() } else { limit.swap_bytes().to_le_bytes() };
        let bytes = if self.below(2) == 0 { &bytes[..width] } else { &bytes[8 - width..] };
        input[at..at + width].copy_from_slice(bytes);
    }

    fn insert(&mut self, input: &mut Vec<u8>, piece: &[u8]) {
        if input.len() + piece.len() <= BYTES_MAX {
            let at = self.below(input.len() + 1);
            input.splice(at..at, piece.iter().copied());
        }
    }

    fn range(&mut self, len: usize) -> Range<usize> {
        let (one, other) = (self.below(len + 1), self.below(len + 1));
        one.min(other)..one.max(other)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a length")
    }

    /// The generator `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
