//! JSON pointers (RFC 6901), and which values of a document a set of them includes.

use std::fmt;
use std::str::FromStr;

use onceward::{Error, ErrorKind, Result};

use super::rules::Pick;

/// Most steps of one pointer: nothing deeper is ever read by value.
pub const POINTER_STEPS_MAX: usize = super::json::DEPTH_MAX;

/// A place in a JSON document: `/items/0/price`; the empty pointer is the whole document. In a step,
/// `~1` is a slash and `~0` a tilde.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pointer {
    steps: Vec<String>,
}

impl Pointer {
    /// Reads a pointer as RFC 6901 writes it.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("JSON pointer `{text}` {why}")));
        if text.is_empty() {
            return Ok(Self { steps: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return refuse("does not begin with a slash");
        };
        let mut steps = Vec::new();
        for step in rest.split('/') {
            if step.split('~').skip(1).any(|behind| !behind.starts_with(['0', '1'])) {
                return refuse("has a `~` without 0 or 1 behind it; write `~0` for a tilde");
            }
            // In this order, so that `~01` becomes `~1` and not a slash.
            steps.push(step.replace("~1", "/").replace("~0", "~"));
        }
        if steps.len() > POINTER_STEPS_MAX {
            return refuse(&format!("has more than {POINTER_STEPS_MAX} steps"));
        }
        Ok(Self { steps })
    }

    /// Its steps, unescaped.
    pub(crate) fn steps(&self) -> &[String] {
        &self.steps
    }
}

impl FromStr for Pointer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

/// Which values of a document count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Selection {
    #[default]
    All,
    Only(Node),
    Except(Node),
}

/// Whether one value counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inclusion<'r> {
    /// It counts with all that is in it.
    Keep,
    /// It does not count.
    Drop,
    /// Some of the values inside it count.
    Within(&'r Node),
}

/// What several pointers have in common up to here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// A pointer ends here. Those that would go on are covered by it, so there is nothing below.
    ends: bool,
    below: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: Box<[u8]>,
    /// The same step into an array, where it can be one: no leading zeros, no sign.
    index: Option<usize>,
    node: Node,
}

impl Selection {
    pub(super) fn new(pick: &Pick<Pointer>) -> Self {
        match pick {
            Pick::All => Self::All,
            Pick::Only(pointers) => Self::Only(Node::new(pointers)),
            Pick::Except(pointers) => Self::Except(Node::new(pointers)),
        }
    }

    /// Whether the document counts.
    pub(super) fn of_document(&self) -> Inclusion<'_> {
        match self {
            Self::All => Inclusion::Keep,
            Self::Only(root) | Self::Except(root) => self.at(Some(root)),
        }
    }

    /// Whether the member `name` of an object counts.
    pub(super) fn of_member<'r>(&'r self, object: Inclusion<'r>, name: &[u8]) -> Inclusion<'r> {
        let Inclusion::Within(node) = object else { return object };
        self.at(node.below.iter().find(|step| *step.name == *name).map(|step| &step.node))
    }

    /// Whether the element at `index` of an array counts.
    pub(super) fn of_element<'r>(&'r self, array: Inclusion<'r>, index: usize) -> Inclusion<'r> {
        let Inclusion::Within(node) = array else { return array };
        self.at(node.below.iter().find(|step| step.index == Some(index)).map(|step| &step.node))
    }

    /// Whether a value that is neither object nor array, and that pointers lead *through*, counts. Of
    /// `/a/b` in `{"a": 5}`, only `/a/b` was asked for; but without `/a/b`, the rest stays as it is.
    pub(super) fn keeps_leaf_on_the_way(&self) -> bool {
        !matches!(self, Self::Only(_))
    }

    fn at<'r>(&self, node: Option<&'r Node>) -> Inclusion<'r> {
        let pointed_to = match node {
            Some(node) if !node.ends && !node.below.is_empty() => return Inclusion::Within(node),
            Some(node) => node.ends,
            None => false,
        };
        if pointed_to == matches!(self, Self::Only(_)) { Inclusion::Keep } else { Inclusion::Drop }
    }
}

impl Node {
    fn new(pointers: &[Pointer]) -> Self {
        let mut root = Self::default();
        for pointer in pointers {
            root.add(&pointer.steps);
        }
        root
    }

    fn add(&mut self, steps: &[String]) {
        let mut node = self;
        for name in steps {
            if node.ends {
                return;
            }
            let known = node.below.iter().position(|step| *step.name == *name.as_bytes());
            let at = known.unwrap_or_else(|| {
                node.below.push(Step {
                    name: name.as_bytes().into(),
                    index: index(name),
                    node: Self::default(),
                });
                node.below.len() - 1
            });
            node = &mut node.below[at].node;
        }
        *node = Self { ends: true, below: Vec::new() };
    }
}

/// A step as the index of an array, where it can be one.
pub(crate) fn index(step: &str) -> Option<usize> {
    let plain = step.bytes().all(|byte| byte.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    if plain { step.parse().ok() } else { None }
}

#[cfg(test)]
#[path = "pointer_test.rs"]
mod test;
