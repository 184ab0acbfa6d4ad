use super::*;

const SOURCE: &str = r"
//! A module.
pub use inner::Thing;

/// Documented.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// A field.
    pub size: usize,
    secret: u8,
}

impl Options {
    /// Long.
    pub fn with_size(
        mut self,
        size: usize,
    ) -> Self {
        self.size = size;
        self
    }

    pub(crate) fn inner(&self) {}

    #[doc(hidden)]
    pub fn for_tests(&self) {
        let x = 1;
    }
}

impl<T: Into<u8>> Generic<T> {
    pub fn get(&self) -> u8 { 7 }
}

pub struct Generic<T>(T);

pub enum State {
    Open,
    Held { until: u64 },
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result { Ok(()) }
}

impl Drop for Private {
    fn drop(&mut self) {}
}

pub trait Store: Send {
    fn load(&self) -> u8;
    fn extra(&self) -> u8 {
        let y = 2;
        y
    }
}

pub const MAX: usize = 7;

struct Private {
    pub shown: u8,
}
";

fn listed() -> Vec<String> {
    let types: BTreeSet<&str> = types(SOURCE).collect();
    items(SOURCE, &types)
}

#[test]
fn public_items_are_listed_and_nothing_else() {
    assert_eq!(
        listed(),
        [
            "pub use inner::Thing",
            "#[derive(Clone, Debug)] #[non_exhaustive] pub struct Options",
            "Options: pub size: usize",
            "Options: pub fn with_size( mut self, size: usize, ) -> Self",
            "Generic: pub fn get(&self) -> u8",
            "pub struct Generic<T>(T)",
            "pub enum State",
            "State: Open",
            "State: Held { until: u64 }",
            "impl std::fmt::Display for State",
            "pub trait Store: Send",
            "Store: fn load(&self) -> u8",
            "Store: fn extra(&self) -> u8",
            "pub const MAX: usize",
        ]
    );
}
