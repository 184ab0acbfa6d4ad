//! Reads the declaration of a machine from a TOML text, which a service and the drawing in its documentation can share.

use std::collections::BTreeMap;

use onceward::Result;
use serde::Deserialize;

use super::super::statement::invalid;
use super::{Machine, MachineBuilder};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declaration {
    table: String,
    key: String,
    state: String,
    initial: Option<String>,
    history: Option<String>,
    #[serde(default)]
    allowed: BTreeMap<String, Vec<String>>,
}

impl Machine {
    /// A machine that is declared in a TOML text. Effects are code: add them with [`MachineBuilder::with_effect`].
    /// `onceward machine` checks and draws the same file.
    ///
    /// ```
    /// use onceward_stores::sql::Machine;
    ///
    /// let orders = Machine::builder_from_toml(
    ///     r#"
    ///     table = "orders"
    ///     key = "id"
    ///     state = "state"
    ///     initial = "placed"
    ///     history = "order_history"
    ///
    ///     [allowed]
    ///     placed = ["paid", "cancelled"]
    ///     paid = ["shipped", "cancelled"]
    ///     "#,
    /// )?
    /// .build()?;
    /// assert_eq!(orders.allowed("paid"), ["shipped", "cancelled"]);
    /// # Ok::<(), onceward::Error>(())
    /// ```
    pub fn builder_from_toml(declaration: &str) -> Result<MachineBuilder> {
        let declared: Declaration = toml::from_str(declaration)
            .map_err(|error| invalid(format!("not a declaration of a machine: {error}")))?;
        let mut builder = Self::builder(&declared.table, &declared.key, &declared.state);
        if let Some(initial) = &declared.initial {
            builder = builder.with_initial(initial);
        }
        if let Some(history) = &declared.history {
            builder = builder.with_history(history);
        }
        for (from, to) in &declared.allowed {
            builder = builder.with_allowed(from, to.iter().map(String::as_str));
        }
        Ok(builder)
    }
}
