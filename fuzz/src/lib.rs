#![doc = include_str!("../README.md")]

mod mutate;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mutate::Mutator;

/// Inputs of one target where no time is given: a moment in a debug build.
const INPUTS: u64 = 5_000;
/// The seed of the sequence of inputs, unless one is given: a failure is the same on every machine.
const SEED: u64 = 1;
/// Inputs that are kept because the verdict about them was new.
const KEPT_MAX: usize = 4_096;
/// Files that a run adds to the corpus of a target, and their size.
const CORPUS_FILES: usize = 16;
const CORPUS_FILE_BYTES: usize = 300;
/// Between two looks at the clock.
const INPUTS_PER_LOOK: u64 = 64;

/// A target: a name, and what its inputs look like.
pub struct Fuzz<'a> {
    name: &'a str,
    seeds: Vec<Vec<u8>>,
    words: &'a [&'a [u8]],
}

impl<'a> Fuzz<'a> {
    /// A target whose seeds are the files in `corpus/NAME`. The name is lower-case letters and `_`: `tools/fuzz` reads it
    /// again from the line about the target.
    pub fn new(name: &'a str) -> Self {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "the target {name:?} is named with other characters than a-z and _"
        );
        let mut files: Vec<PathBuf> = std::fs::read_dir(home().join("corpus").join(name))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .collect();
        files.sort();
        let seeds = files.iter().filter_map(|file| std::fs::read(file).ok()).collect();
        Self { name, seeds, words: &[] }
    }

    /// Adds seeds that are made by code.
    #[must_use]
    pub fn with_seeds(mut self, seeds: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Sets words that mean something to the target, and that are put into its inputs.
    #[must_use]
    pub fn with_words(mut self, words: &'a [&'a [u8]]) -> Self {
        self.words = words;
        self
    }

    /// Feeds the target. `read` returns its verdict about an input, such as the text of an error: inputs with a new one
    /// are mutated further. Panics if `read` does.
    pub fn run<V: Hash>(mut self, read: impl Fn(&[u8]) -> V) {
        assert!(!self.seeds.is_empty(), "the target {} has no seeds", self.name);
        let seed = setting("ONCEWARD_FUZZ_SEED").unwrap_or(SEED);
        let time = setting("ONCEWARD_FUZZ_SECONDS").map(Duration::from_secs);
        let mut mutator = Mutator::new(seed, self.words);
        let mut verdicts = HashSet::new();
        let began = Instant::now();
        let from_code = self.seeds.len();
        for seed in &self.seeds {
            verdicts.insert(self.judge(seed, &read));
        }
        let mut inputs = self.seeds.len() as u64;
        let mut input = Vec::new();
        while !is_over(time, began, inputs) {
            mutator.make(&self.seeds, &mut input);
            let verdict = self.judge(&input, &read);
            inputs += 1;
            if verdicts.len() < KEPT_MAX && verdicts.insert(verdict) {
                self.seeds.push(input.clone());
            }
        }
        if std::env::var_os("ONCEWARD_FUZZ_KEEP").is_some() {
            self.keep_corpus(from_code);
        }
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "fuzz {}: {inputs} inputs in {seconds:.1} s, {} verdicts, seed {seed}",
            self.name,
            verdicts.len()
        );
    }

    /// Writes the shortest of the inputs that were kept to the corpus.
    fn keep_corpus(&self, from_code: usize) {
        let mut kept: Vec<&Vec<u8>> = self.seeds[from_code..].iter().collect();
        kept.sort_by_key(|input| input.len());
        let folder = home().join("corpus").join(self.name);
        std::fs::create_dir_all(&folder).expect("the corpus can be written");
        for input in kept.iter().take(CORPUS_FILES).filter(|input| input.len() <= CORPUS_FILE_BYTES) {
            std::fs::write(folder.join(file_name(input)), input).expect("the corpus can be written");
        }
    }

    fn judge<V: Hash>(&self, input: &[u8], read: impl Fn(&[u8]) -> V) -> u64 {
        match catch_unwind(AssertUnwindSafe(|| read(input))) {
            Ok(verdict) => {
                let mut hasher = DefaultHasher::new();
                verdict.hash(&mut hasher);
                hasher.finish()
            }
            Err(panic) => {
                let file = keep_failure(self.name, input);
                eprintln!("fuzz {}: this input panics, see {}: {input:?}", self.name, file.display());
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn is_over(time: Option<Duration>, began: Instant, inputs: u64) -> bool {
    match time {
        Some(time) => inputs.is_multiple_of(INPUTS_PER_LOOK) && began.elapsed() >= time,
        None => inputs >= INPUTS,
    }
}

fn keep_failure(name: &str, input: &[u8]) -> PathBuf {
    let folder = home().join("failures");
    let file = folder.join(format!("{name}-{}", file_name(input)));
    // Without the file its bytes are still in the message.
    let _ = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, input));
    file
}

fn file_name(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[cfg(test)]
mod tests {
    use super::Fuzz;

    #[test]
    fn names_are_those_that_the_script_reads() {
        Fuzz::new("upstream_response");
        for name in ["", "upstream-response", "Upstream", "key2"] {
            assert!(std::panic::catch_unwind(|| Fuzz::new(name)).is_err(), "{name:?}");
        }
    }
}
