use super::*;

const SOURCE: &str = r"
//! A module.
pub use inner::Thing;
pub use engine::{
    Engine, EngineBuilder,
    Worker as Runner,
};

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
    /// Over several lines.
    Closed {
        /// A field of the variant.
        reason: String,
    },
    Failed(
        String,
        u8,
    ),
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
    items(SOURCE, &types, Reach::All)
}

#[test]
fn public_items_are_listed_and_nothing_else() {
    assert_eq!(
        listed(),
        [
            "pub use inner::Thing",
            "pub use engine::{ Engine, EngineBuilder, Worker as Runner, }",
            "#[derive(Clone, Debug)] #[non_exhaustive] pub struct Options",
            "Options: pub size: usize",
            "Options: pub fn with_size( mut self, size: usize, ) -> Self",
            "Generic: pub fn get(&self) -> u8",
            "pub struct Generic<T>(T)",
            "pub enum State",
            "State: Open",
            "State: Held { until: u64 }",
            "State: Closed",
            "State::Closed: reason: String",
            "State: Failed( String, u8, )",
            "impl std::fmt::Display for State",
            "pub trait Store: Send",
            "Store: fn load(&self) -> u8",
            "Store: fn extra(&self) -> u8",
            "pub const MAX: usize",
        ]
    );
}

#[test]
fn a_closed_type_must_say_so() {
    let text = "\
/// May grow.
#[derive(Debug)]
#[non_exhaustive]
pub enum Rule {
    One,
}

/// What was found.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Debug)]
pub enum Answer {
    One,
}
pub enum Forgotten {
    One,
}

/// Has a field that only its own crate can set.
pub struct Guarded {
    pub name: u8,
    pub(super) run: u8,
}

/// Anybody can build it.
#[derive(Debug)]
pub struct Open {
    /// A field.
    pub name: u8,
}
";
    assert_eq!(exhaustive_by_accident(text), ["enum Forgotten", "struct Open"]);
}

#[test]
fn a_hidden_module_is_known_by_its_line() {
    let text = "pub mod shown;\n#[doc(hidden)]\npub mod inner;\n#[doc(hidden)]\npub fn inner() {}\n";
    assert_eq!(hidden_modules(text).collect::<Vec<_>>(), ["inner"]);
}

#[test]
fn a_private_module_has_only_what_is_exported_from_it() {
    let exported =
        exports("    pub use inner::Options;\npub use other::{\n    Generic as Typed, thing::*,\n};\n");
    assert!(
        ["Options", "Generic", "Typed", "thing::*"].iter().all(|name| exported.contains(*name)),
        "{exported:?}"
    );
    let types = BTreeSet::from(["Options", "Generic"]);
    assert_eq!(
        items(SOURCE, &types, Reach::Exported(&exported)),
        [
            "pub use inner::Thing",
            "pub use engine::{ Engine, EngineBuilder, Worker as Runner, }",
            "#[derive(Clone, Debug)] #[non_exhaustive] pub struct Options",
            "Options: pub size: usize",
            "Options: pub fn with_size( mut self, size: usize, ) -> Self",
            "Generic: pub fn get(&self) -> u8",
            "pub struct Generic<T>(T)",
        ]
    );
}

#[test]
fn a_public_module_is_known_by_its_line() {
    let text = "mod inner;\npub mod shown;\npub(crate) mod half;\npub mod inline {\n}\n";
    assert_eq!(public_modules(text).collect::<Vec<_>>(), ["shown"]);
}
