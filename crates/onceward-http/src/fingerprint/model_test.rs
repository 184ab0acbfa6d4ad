//! A second, independent implementation of JSON values for tests: a model, its spellings, and a reader
//! that turns canonical bytes back into the model. If every value comes back, no two share their bytes.

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;

/// A value. Texts are UTF-16, as escapes see them, so that halves of pairs can stand alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Model {
    Null,
    Bool(bool),
    /// `digits` is empty for zero, and otherwise neither begins nor ends with one.
    Number {
        is_negative: bool,
        digits: String,
        exponent: i64,
    },
    Text(Vec<u16>),
    Array(Vec<Model>),
    Object(BTreeMap<Vec<u16>, Model>),
}

pub(super) fn models() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::Bool),
        (any::<bool>(), "|[1-9]|[1-9][0-9]{0,20}[1-9]", -30_i64..30).prop_map(number),
        (any::<bool>(), "[1-9]", -1_000_000_000_000_000_000..=1_000_000_000_000_000_000_i64).prop_map(number),
        texts().prop_map(Model::Text),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Model::Array),
            prop::collection::btree_map(texts(), inner, 0..8).prop_map(Model::Object),
        ]
    })
}

fn number((is_negative, digits, exponent): (bool, String, i64)) -> Model {
    if digits.is_empty() {
        return Model::Number { is_negative: false, digits, exponent: 0 };
    }
    Model::Number { is_negative, digits, exponent }
}

/// Few and awkward characters, so that texts are often equal, nearly equal, or each other's beginning.
fn texts() -> impl Strategy<Value = Vec<u16>> {
    let unit = prop_oneof![
        4 => prop::sample::select(vec![b'a', b'b', b'"', b'\\', b'/', 0, 0x1f, 0x7f]).prop_map(u16::from),
        1 => prop::sample::select(vec![0xd83d, 0xde00, 0xdbff, 0xdc00, 0xfffd, 0xffff, 0x80, 0xfe, 0xff]),
        1 => any::<u16>(),
    ];
    prop::collection::vec(unit, 0..6)
}

/// One of the many ways to write a value, chosen by the seed.
pub(super) fn spell(model: &Model, seed: u64) -> String {
    let mut pen = Pen { out: String::new(), seed };
    pen.space();
    pen.value(model);
    pen.space();
    pen.out
}

struct Pen {
    out: String,
    seed: u64,
}

impl Pen {
    fn below(&mut self, bound: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % bound
    }

    fn space(&mut self) {
        while self.below(3) == 0 {
            let space = [' ', '\t', '\n', '\r'][usize::try_from(self.below(4)).unwrap()];
            self.out.push(space);
        }
    }

    fn value(&mut self, model: &Model) {
        match model {
            Model::Null => self.out.push_str("null"),
            Model::Bool(yes) => self.out.push_str(if *yes { "true" } else { "false" }),
            Model::Number { is_negative, digits, exponent } => self.number(*is_negative, digits, *exponent),
            Model::Text(text) => self.text(text),
            Model::Array(items) => self.list('[', items, ']', Self::value),
            Model::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for end in (1..members.len()).rev() {
                    let other = usize::try_from(self.below(end as u64 + 1)).unwrap();
                    members.swap(end, other);
                }
                self.list('{', &members, '}', |pen, (name, value)| {
                    pen.text(name);
                    pen.space();
                    pen.out.push(':');
                    pen.space();
                    pen.value(value);
                });
            }
        }
    }

    fn list<T>(&mut self, open: char, items: &[T], close: char, mut write: impl FnMut(&mut Self, &T)) {
        self.out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.space();
            write(self, item);
            self.space();
        }
        self.space();
        self.out.push(close);
    }

    fn number(&mut self, is_negative: bool, digits: &str, exponent: i64) {
        let is_zero = digits.is_empty();
        if is_negative || is_zero && self.below(2) == 0 {
            self.out.push('-');
        }
        // Zeros on both sides, a point somewhere in between, and the exponent makes up for it.
        let (before, behind) = (self.below(4), self.below(4));
        let zeros = |count: u64| "0".repeat(usize::try_from(count).unwrap());
        let all = format!("{}{digits}{}", zeros(before), zeros(behind));
        let mut exponent = exponent - i64::try_from(behind).unwrap();
        if is_zero {
            exponent = i64::try_from(self.below(1 << 30)).unwrap() - (1 << 29);
        }
        let point = usize::try_from(self.below(all.len() as u64 + 1)).unwrap();
        let (whole, fraction) = all.split_at(point);
        let whole = whole.trim_start_matches('0');
        self.out.push_str(if whole.is_empty() { "0" } else { whole });
        if !fraction.is_empty() {
            write!(self.out, ".{fraction}").unwrap();
            exponent += i64::try_from(fraction.len()).unwrap();
        }
        if exponent != 0 || self.below(2) == 0 {
            let letter = if self.below(2) == 0 { 'e' } else { 'E' };
            self.out.push(letter);
            if exponent < 0 {
                self.out.push('-');
            } else if self.below(2) == 0 {
                self.out.push('+');
            }
            let leading = self.below(25);
            write!(self.out, "{}{}", zeros(leading), exponent.unsigned_abs()).unwrap();
        }
    }

    fn text(&mut self, text: &[u16]) {
        self.out.push('"');
        for read in char::decode_utf16(text.iter().copied()) {
            match read {
                Ok(plain) if plain >= ' ' && !matches!(plain, '"' | '\\') && self.below(3) > 0 => {
                    self.out.push(plain);
                }
                Ok(short) if "\"\\/\u{8}\u{c}\n\r\t".contains(short) && self.below(2) == 0 => {
                    let letter = match short {
                        '\u{8}' => 'b',
                        '\u{c}' => 'f',
                        '\n' => 'n',
                        '\r' => 'r',
                        '\t' => 't',
                        same => same,
                    };
                    write!(self.out, "\\{letter}").unwrap();
                }
                Ok(escaped) => {
                    for unit in escaped.encode_utf16(&mut [0; 2]) {
                        self.escape(*unit);
                    }
                }
                Err(half) => self.escape(half.unpaired_surrogate()),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, unit: u16) {
        if self.below(2) == 0 {
            write!(self.out, "\\u{unit:04x}").unwrap();
        } else {
            write!(self.out, "\\u{unit:04X}").unwrap();
        }
    }
}

/// Reads canonical bytes back. They are all used up.
pub(super) fn unwrite(mut bytes: &[u8]) -> Model {
    let model = value(&mut bytes);
    assert!(bytes.is_empty(), "bytes behind the value: {bytes:x?}");
    model
}

fn value(bytes: &mut &[u8]) -> Model {
    match take(bytes) {
        0 => Model::Null,
        1 => Model::Bool(false),
        2 => Model::Bool(true),
        3 => number((false, String::new(), 0)),
        tag @ (4 | 5) => {
            let exponent = signed(bytes);
            let digits = String::from_utf8(up_to_stop(bytes).to_vec()).unwrap();
            Model::Number { is_negative: tag == 5, digits, exponent }
        }
        6 => Model::Text(text(bytes)),
        7 => {
            let mut items = Vec::new();
            while bytes[0] != 0xfe {
                items.push(value(bytes));
            }
            take(bytes);
            Model::Array(items)
        }
        8 => {
            let mut members = BTreeMap::new();
            while bytes[0] != 0xfe {
                let name = text(bytes);
                let value = value(bytes);
                assert!(members.insert(name, value).is_none(), "a member twice");
            }
            take(bytes);
            Model::Object(members)
        }
        other => panic!("no such tag: {other}"),
    }
}

fn take(bytes: &mut &[u8]) -> u8 {
    *bytes.split_off_first().unwrap()
}

fn up_to_stop<'b>(bytes: &mut &'b [u8]) -> &'b [u8] {
    let stop = bytes.iter().position(|byte| *byte == 0xff).unwrap();
    let found = bytes.split_off(..stop).unwrap();
    take(bytes);
    found
}

fn signed(bytes: &mut &[u8]) -> i64 {
    let mut all = 0_u64;
    for shift in (0..).step_by(7) {
        let byte = take(bytes);
        all |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    (all >> 1).cast_signed() ^ -(all & 1).cast_signed()
}

/// WTF-8 to UTF-16, by its definition.
fn text(bytes: &mut &[u8]) -> Vec<u16> {
    let mut units = Vec::new();
    let mut rest = up_to_stop(bytes);
    while let Some(&first) = rest.first() {
        let length = match first {
            ..0x80 => 1,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let (this, behind) = rest.split_at(length);
        rest = behind;
        match std::str::from_utf8(this) {
            Ok(whole) => units.extend(whole.encode_utf16()),
            Err(_) => {
                assert_eq!(length, 3, "only half a pair may fail to be UTF-8");
                let [a, b, c] = [this[0], this[1], this[2]].map(u16::from);
                units.push((a & 0xf) << 12 | (b & 0x3f) << 6 | c & 0x3f);
            }
        }
    }
    units
}
