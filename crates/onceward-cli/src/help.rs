//! Help text that several commands share.

use onceward::{Error, ErrorKind, Result};
use onceward_stores::{AddressForm, address_forms};

/// The value of an option that a subcommand may be given before or after its name, and that clap therefore cannot
/// require.
pub fn required<'a>(value: Option<&'a str>, name: &str) -> Result<&'a str> {
    value
        .filter(|value| !value.is_empty())
        .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("{name} is missing")))
}

/// The text, followed by the forms of `--store`.
pub fn with_stores(text: &str) -> String {
    append_forms(text, address_forms())
}

/// The same without `memory:`, for commands that need receipts that another process can see.
pub fn with_durable_stores(text: &str) -> String {
    append_forms(text, address_forms().filter(|form| form.form != "memory:"))
}

/// The same for databases only.
pub fn with_databases(text: &str) -> String {
    append_forms(text, address_forms().filter(|form| form.is_database))
}

fn append_forms(text: &str, forms: impl Iterator<Item = AddressForm>) -> String {
    let forms: Vec<_> = forms.collect();
    let width = forms.iter().map(|form| form.form.len()).max().unwrap_or(0);
    let lines = forms.iter().map(|form| format!("\n  {:width$}  {}", form.form, form.description));
    format!("{text}\n\nStore addresses (--store, ONCEWARD_STORE):{}", lines.collect::<String>())
}
