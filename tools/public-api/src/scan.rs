//! One file: which lines are items that others can name.

use std::collections::BTreeSet;

/// A block whose lines are read with its head in mind.
struct Block {
    indent: usize,
    kind: Kind,
    /// The type, and of a variant with fields also the variant.
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `impl Type`, of a public type.
    Inherent,
    /// `pub struct`, whose fields are public one by one.
    Struct,
    /// `pub enum`, all of which is public.
    Enum,
    /// `pub trait`, all of whose items are public.
    Trait,
    /// Anything else: nothing in it can be named from outside.
    Closed,
}

/// The names of all public types and traits.
pub fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_start).filter_map(|line| {
        let rest = line.strip_prefix("pub ")?;
        ["struct ", "enum ", "trait ", "type ", "union "]
            .into_iter()
            .find_map(|word| Some(name(rest.strip_prefix(word)?)))
    })
}

/// The names of the modules in files of their own that are not part of the API.
pub fn hidden_modules(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().zip(text.lines().skip(1));
    lines.filter_map(|(attribute, line)| {
        let name = line.strip_prefix("pub mod ")?.strip_suffix(';')?;
        attribute.starts_with("#[doc(hidden)").then_some(name)
    })
}

/// The names of the modules in files of their own that others can name.
pub fn public_modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
}

/// The public enums, and the public structs without private fields, as `enum Name`, that are neither
/// `#[non_exhaustive]` nor documented as closed: "… is a breaking change".
pub fn exhaustive_by_accident(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(head) = line.strip_prefix("pub ").filter(|head| head.ends_with('{')) else { continue };
        let is_open =
            head.starts_with("enum ") || head.starts_with("struct ") && has_no_private_field(&lines[at..]);
        let mut before =
            lines[..at].iter().rev().take_while(|line| !line.is_empty() && !line.starts_with('}'));
        let is_said =
            |line: &&str| line.starts_with("#[non_exhaustive") || line.ends_with("is a breaking change.");
        if is_open && !before.any(is_said) {
            found.push(head.trim_end_matches([' ', '{']).to_owned());
        }
    }
    found
}

/// Whether every field of the struct that begins here can be named by others.
fn has_no_private_field(lines: &[&str]) -> bool {
    let body = lines.iter().skip(1).take_while(|line| !line.starts_with('}')).map(|line| line.trim_start());
    let mut fields =
        body.filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with('#'));
    fields.all(|field| field.starts_with("pub "))
}

/// The names that a `pub use` gives to others, wherever it stands; of a whole module, `path::*`.
pub fn exports(text: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut names = BTreeSet::new();
    for at in (0..lines.len()).filter(|at| lines[*at].trim_start().starts_with("pub use ")) {
        let (head, _) = join(&lines, at, &[";"]);
        for path in head.split([',', '{', '}', ';']).map(str::trim) {
            let path = path.strip_prefix("pub use ").unwrap_or(path);
            let name = path.rsplit(" as ").next().unwrap_or_default();
            let whole = if name.ends_with("::*") { path } else { self::name(name) };
            names.insert(whole.to_owned());
            // The new name is in the list, and the item itself is under its old one.
            names.insert(self::name(path.split(" as ").next().unwrap_or_default()).to_owned());
        }
    }
    names
}

/// Which items of a module others can name: all, or those that a `pub use` elsewhere exports.
#[derive(Clone, Copy)]
pub enum Reach<'a> {
    All,
    Exported(&'a BTreeSet<String>),
}

impl Reach<'_> {
    pub fn has(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exported(names) => names.contains(name),
        }
    }
}

/// Every item that others can name, as it is written, without its body and its documentation. `types` are the public
/// types of the crate that others can name; blocks that implement them are listed wherever they stand.
pub fn items(text: &str, types: &BTreeSet<&str>, reach: Reach<'_>) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut items, mut blocks): (Vec<String>, Vec<Block>) = (Vec::new(), Vec::new());
    let (mut hidden, mut derived) = (false, None);
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim();
        let indent = lines[at].len() - lines[at].trim_start().len();
        if line.is_empty() || line.starts_with("//") {
            at += 1;
            continue;
        }
        if line.starts_with("#[") {
            let (attribute, next) = join(&lines, at, &["]"]);
            hidden |= attribute.starts_with("#[doc(hidden)");
            if attribute.starts_with("#[derive(") || attribute.starts_with("#[non_exhaustive") {
                derived = Some(format!("{}{attribute} ", derived.unwrap_or_default()));
            }
            at = next;
            continue;
        }
        if line.starts_with('}') && blocks.last().is_some_and(|block| block.indent == indent) {
            blocks.pop();
            at += 1;
            continue;
        }
        if blocks.last().is_some_and(|block| block.kind == Kind::Closed) {
            at += 1;
            continue;
        }
        let block = blocks.last().map(|block| (block.kind, block.name.clone()));
        let public = line.starts_with("pub ");
        let ends: &[&str] = match block {
            // Names in braces over several lines.
            _ if line.starts_with("pub use ") => &[";"],
            Some((Kind::Struct, _)) => &[","],
            Some((Kind::Enum, _)) if line.ends_with('(') => &["),"],
            Some((Kind::Enum, _)) => &[",", "{"],
            _ => &["{", ";", "}"],
        };
        let (head, next) = join(&lines, at, ends);
        let is_impl = line.starts_with("impl") && head.ends_with('{');
        let self_type =
            name(head.rsplit(" for ").next().unwrap_or_default().trim_start_matches("impl").trim_start());
        let self_type = if head.starts_with("impl<") && !head.contains(" for ") {
            after_generics(&head)
        } else {
            self_type
        };
        let listed = match block {
            _ if hidden => false,
            None if is_impl => head.contains(" for ") && types.contains(self_type),
            None => public && (line.starts_with("pub use ") || reach.has(item_name(&line[4..]))),
            Some((Kind::Inherent | Kind::Struct, _)) => public,
            Some((Kind::Enum | Kind::Trait, _)) => true,
            Some((Kind::Closed, _)) => false,
        };
        if listed {
            let item = signature(&head);
            let derived = derived.as_deref().unwrap_or_default();
            items.push(match &block {
                Some((_, within)) => format!("{within}: {item}"),
                None => format!("{derived}{item}"),
            });
        }
        if head.ends_with('{') {
            let (kind, name) = match block {
                Some((Kind::Enum, within)) if !hidden => (Kind::Enum, format!("{within}::{}", name(line))),
                None if is_impl && !head.contains(" for ") && types.contains(self_type) && !hidden => {
                    (Kind::Inherent, self_type.to_owned())
                }
                None if listed && line.starts_with("pub struct ") => {
                    (Kind::Struct, name(&line[11..]).to_owned())
                }
                None if listed && line.starts_with("pub enum ") => (Kind::Enum, name(&line[9..]).to_owned()),
                None if listed && line.starts_with("pub trait ") => {
                    (Kind::Trait, name(&line[10..]).to_owned())
                }
                _ => (Kind::Closed, String::new()),
            };
            blocks.push(Block { indent, kind, name });
        }
        (hidden, derived) = (false, None);
        at = next;
    }
    items
}

/// The lines from `at` on, up to the first that ends with one of these, as one.
fn join(lines: &[&str], at: usize, ends: &[&str]) -> (String, usize) {
    let mut whole = String::new();
    for (number, line) in lines.iter().enumerate().skip(at) {
        let line = line.split(" // ").next().unwrap_or_default().trim();
        if !whole.is_empty() {
            whole.push(' ');
        }
        whole.push_str(line);
        if ends.iter().any(|end| line.ends_with(end)) || line.is_empty() {
            return (whole, number + 1);
        }
    }
    (whole, lines.len())
}

/// Without a body or a value.
fn signature(head: &str) -> &str {
    let head = if head.contains(" fn ") || head.starts_with("fn ") {
        head.split(" {").next().unwrap_or(head)
    } else if head.contains("const ") || head.contains("static ") {
        head.split(" = ").next().unwrap_or(head)
    } else {
        head
    };
    head.trim_end_matches([' ', '{', ';', ','])
}

/// The first word that can be a name; of a path, its last part.
fn name(text: &str) -> &str {
    let path =
        text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().unwrap_or_default();
    path.trim_end_matches(':').rsplit("::").next().unwrap_or_default()
}

/// The name of an item whose line begins with `pub`, without that.
fn item_name(rest: &str) -> &str {
    let keywords =
        ["struct", "enum", "trait", "type", "union", "mod", "fn", "async", "const", "static", "unsafe"];
    let word = rest.split(' ').find(|word| !keywords.contains(word)).unwrap_or_default();
    name(word)
}

/// The type of `impl<…> Type<…> {`.
fn after_generics(head: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in head.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if !head[..at].ends_with('-') => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return name(head[at + 1..].trim_start());
        }
    }
    ""
}

#[cfg(test)]
#[path = "scan_test.rs"]
mod tests;
