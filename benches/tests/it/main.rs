//! The report in all its forms from made-up data, and real runs too small to mean anything.

mod names;
mod rendering;
mod tiny;
