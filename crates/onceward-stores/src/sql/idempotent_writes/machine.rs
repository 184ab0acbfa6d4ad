//! A state machine over a column: the allowed changes of state, declared once, with the effects and the history that
//! belong to them.

#[cfg(feature = "toml")]
mod declaration;
mod draw;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use onceward::{Error, ErrorKind, Result, StoreFuture};

use super::insert::{Inserted, insert};
use super::statement::{changes, check_names, exact, invalid, locked, placeholder, placeholders, text};
use crate::sql::join::{AnyTransaction, SqlTransaction, Value};

/// The longest name of a state.
const STATE_CHARS_MAX: usize = 64;
/// The columns of a history, in the order in which they are written.
const HISTORY_COLUMNS: [&str; 5] = ["entity", "from_state", "to_state", "actor", "idempotency_key"];

/// A state machine: which state may follow which, in a column of the user's own table.
///
/// A retry that finds the state reached already is told so and has no effects.
///
/// ```
/// use onceward_stores::sql::{AnyTransaction, Change, Machine, Moved, Reason, SqlTransaction, Value, insert};
///
/// # fn machine() -> onceward::Result<Machine> {
/// let orders = Machine::builder("orders", "id", "state")
///     .with_initial("placed")
///     .with_allowed("placed", ["paid", "cancelled"])
///     .with_allowed("paid", ["shipped", "cancelled"])
///     .with_history("order_history")
///     .with_effect("shipped", |mut tx, change| {
///         Box::pin(async move {
///             let mail = [("order_id", change.key), ("kind", Value::Text("shipped"))];
///             insert(&mut tx, "mails", &mail).await.map(drop)
///         })
///     })
///     .build()?;
/// # Ok(orders) }
/// # async fn ship<T: SqlTransaction>(orders: &Machine, tx: &mut T) -> onceward::Result<()> {
/// match orders.change(tx, Value::Text("order-81"), "shipped", Reason::default()).await? {
///     Moved::Changed { .. } => {}    // the mail is written in the same transaction
///     Moved::AlreadyThere => {}      // a duplicate: no second mail
///     Moved::Illegal { .. } => {}    // for example cancelled; it says what would be allowed
///     _ => {}
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Machine {
    table: String,
    key: String,
    state: String,
    initial: Option<String>,
    allowed: BTreeMap<String, Vec<String>>,
    history: Option<String>,
    effects: Vec<(String, Arc<EffectFn>)>,
}

/// The effects of a change of state, which commit with it: see [`MachineBuilder::with_effect`].
pub type EffectFn =
    dyn for<'a> Fn(&'a mut dyn AnyTransaction, Change<'a>) -> StoreFuture<'a, ()> + Send + Sync;

/// A change of state that is being made.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change<'a> {
    /// The key of the row.
    pub key: Value<'a>,
    /// Its state before.
    pub from: &'a str,
    /// Its state from now on.
    pub to: &'a str,
    /// The author and the cause of the change.
    pub reason: Reason<'a>,
}

/// The author and the cause of a change of state. It is written to the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reason<'a> {
    /// Who: a user, a service.
    pub actor: Option<&'a str>,
    /// The idempotency key of the request.
    pub idempotency_key: Option<&'a str>,
}

impl<'a> Reason<'a> {
    /// Sets who changes it.
    pub fn with_actor(mut self, actor: &'a str) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Sets the idempotency key of the request that changes it.
    pub fn with_idempotency_key(mut self, key: &'a str) -> Self {
        self.idempotency_key = Some(key);
        self
    }
}

/// The result of a change of state.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This call changed it. Its effects and its row of history commit with the transaction.
    Changed {
        /// The state before.
        from: String,
    },
    /// It was there already: a duplicate. Nothing was written.
    AlreadyThere,
    /// The machine does not allow it. Nothing was written.
    Illegal {
        /// The state that it is in; `None` if there is no such row.
        current: Option<String>,
        /// The states that may follow it.
        allowed: Vec<String>,
    },
}

impl Machine {
    /// A machine over the column `state` of `table`, whose rows are found by the column `key`. The column `key` must be
    /// unique, and `state` a text.
    pub fn builder(table: &str, key: &str, state: &str) -> MachineBuilder {
        MachineBuilder {
            machine: Self {
                table: table.to_owned(),
                key: key.to_owned(),
                state: state.to_owned(),
                initial: None,
                allowed: BTreeMap::new(),
                history: None,
                effects: Vec::new(),
            },
            repeated: None,
        }
    }

    /// All states, in alphabetical order.
    pub fn states(&self) -> Vec<&str> {
        let to = self.allowed.values().flatten();
        let all: BTreeSet<&str> =
            self.allowed.keys().chain(to).chain(&self.initial).map(String::as_str).collect();
        all.into_iter().collect()
    }

    /// The states that may follow one. Empty if it is final, or no state of this machine.
    pub fn allowed(&self, from: &str) -> &[String] {
        self.allowed.get(from).map_or(&[], Vec::as_slice)
    }

    /// Checks the machine against the database: that the columns are there, and that no row is in a state that the
    /// machine does not know. Meant for the start of a service; it reads the whole column.
    pub async fn check<T: SqlTransaction>(&self, tx: &mut T) -> Result<()> {
        let Self { table, key, state, .. } = self;
        let states = self.states();
        let known = placeholders(tx.dialect(), 1, states.len()).join(", ");
        // By bytes: a collation may take `Paid` for `paid`, and a machine does not.
        let exactly = exact(tx.dialect(), state);
        let look = format!("SELECT {state} FROM {table} WHERE {state} IS NULL OR {exactly} NOT IN ({known})");
        let values: Vec<Value<'_>> = states.iter().map(|state| Value::Text(state)).collect();
        if let Some(row) = tx.fetch(&look, &values).await? {
            let found = row.into_iter().next().and_then(text);
            let found = found.map_or_else(|| "no state".to_owned(), |state| format!("the state `{state}`"));
            return Err(invalid(format!(
                "a row of {table} has {found}, which the machine does not know; it knows {}",
                states.join(", ")
            )));
        }
        tx.fetch(&format!("SELECT {key} FROM {table} WHERE 1 = 0"), &[]).await?;
        if let Some(history) = &self.history {
            let columns = HISTORY_COLUMNS.join(", ");
            tx.fetch(&format!("SELECT {columns} FROM {history} WHERE 1 = 0"), &[]).await?;
        }
        Ok(())
    }

    /// Moves a row to a state, in the caller's transaction: from whatever state it is in, if that is allowed. Of any
    /// number of callers that want the same change, one is told [`Moved::Changed`].
    ///
    /// After an error the transaction must be rolled back.
    pub async fn change<T: SqlTransaction>(
        &self,
        tx: &mut T,
        key: Value<'_>,
        to: &str,
        reason: Reason<'_>,
    ) -> Result<Moved> {
        if !self.states().contains(&to) {
            let states = self.states().join(", ");
            return Err(invalid(format!("`{to}` is no state of {}; its states are {states}", self.table)));
        }
        let Self { table, key: by, state, .. } = self;
        let Some(current) = locked(tx, table, state, by, key).await?.and_then(text) else {
            return Ok(Moved::Illegal { current: None, allowed: Vec::new() });
        };
        if current == to {
            return Ok(Moved::AlreadyThere);
        }
        let allowed = self.allowed(&current);
        if !allowed.iter().any(|state| state == to) {
            return Ok(Moved::Illegal { allowed: allowed.to_vec(), current: Some(current) });
        }
        let [one, two, three] = [1, 2, 3].map(|number| placeholder(tx.dialect(), number));
        let update = format!("UPDATE {table} SET {state} = {one} WHERE {by} = {two} AND {state} = {three}");
        if !changes(tx, &update, &[Value::Text(to), key, Value::Text(&current)]).await? {
            let detail = format!("a row of {table} was changed in spite of its lock");
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
        self.follow_up(tx, Change { key, from: &current, to, reason }).await?;
        Ok(Moved::Changed { from: current })
    }

    /// What belongs to a change that was made.
    async fn follow_up<T: SqlTransaction>(&self, tx: &mut T, change: Change<'_>) -> Result<()> {
        if let Some(history) = &self.history {
            let Change { key, from, to, reason } = change;
            let values = [
                key,
                Value::Text(from),
                Value::Text(to),
                Value::Text(reason.actor.unwrap_or_default()),
                Value::Text(reason.idempotency_key.unwrap_or_default()),
            ];
            let row: Vec<(&str, Value<'_>)> = HISTORY_COLUMNS.into_iter().zip(values).collect();
            if insert(tx, history, &row).await? == Inserted::AlreadyThere {
                let detail =
                    format!("{history} has a unique index that leaves no place for a second row of a change");
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
        }
        for (_, effect) in self.effects.iter().filter(|(to, _)| to == change.to) {
            effect(&mut *tx, change).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("table", &self.table)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

/// Builds a [`Machine`].
#[derive(Debug)]
#[must_use]
pub struct MachineBuilder {
    machine: Machine,
    /// The first state whose followers were declared twice.
    repeated: Option<String>,
}

impl MachineBuilder {
    /// Sets the state that new rows are in. Every other state must then be reachable from it.
    pub fn with_initial(mut self, state: &str) -> Self {
        self.machine.initial = Some(state.to_owned());
        self
    }

    /// Declares which states may follow one. A state that nothing follows is final and needs no declaration.
    pub fn with_allowed<'a>(mut self, from: &str, to: impl IntoIterator<Item = &'a str>) -> Self {
        let to = to.into_iter().map(str::to_owned).collect();
        if self.machine.allowed.insert(from.to_owned(), to).is_some() {
            self.repeated.get_or_insert(from.to_owned());
        }
        self
    }

    /// Records every change in a table of the user's own, with the columns `entity` (of the type of the key), and as
    /// texts `from_state`, `to_state`, `actor` and `idempotency_key` (the last two are empty where nothing was given). A
    /// column with the time of the insert as its default completes it. It needs no unique index; a change whose row one would
    /// keep out fails.
    pub fn with_history(mut self, table: &str) -> Self {
        self.machine.history = Some(table.to_owned());
        self
    }

    /// Adds what is to be written whenever a row is changed *to* a state: in the same transaction, and only by the call
    /// that changed it. An error of the effect is the error of the change.
    pub fn with_effect<F>(mut self, to: &str, effect: F) -> Self
    where
        F: for<'a> Fn(&'a mut dyn AnyTransaction, Change<'a>) -> StoreFuture<'a, ()> + Send + Sync + 'static,
    {
        self.machine.effects.push((to.to_owned(), Arc::new(effect)));
        self
    }

    /// Checks the declaration: plain names, at least one change, no state twice, nothing that cannot be reached.
    pub fn build(self) -> Result<Machine> {
        let Self { machine, repeated } = self;
        check_names(
            [&machine.table, &machine.key, &machine.state]
                .into_iter()
                .chain(&machine.history)
                .map(String::as_str),
        )?;
        if let Some(state) = repeated {
            return Err(invalid(format!("what follows `{state}` is declared twice")));
        }
        let states = machine.states();
        if machine.allowed.values().all(Vec::is_empty) {
            return Err(invalid(format!("the machine of {} allows no change", machine.table)));
        }
        for state in &states {
            let printable = state.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
            if state.is_empty() || state.len() > STATE_CHARS_MAX || !printable {
                let rule = format!("1 to {STATE_CHARS_MAX} printable ASCII characters");
                return Err(invalid(format!("{state:?} is not the name of a state: it needs {rule}")));
            }
        }
        for (from, followers) in &machine.allowed {
            if followers.contains(from) {
                return Err(invalid(format!("`{from}` cannot follow itself: that is no change")));
            }
            let mut seen = BTreeSet::new();
            if let Some(twice) = followers.iter().find(|to| !seen.insert(*to)) {
                return Err(invalid(format!("`{twice}` follows `{from}` twice")));
            }
        }
        if let Some((unknown, _)) = machine.effects.iter().find(|(to, _)| !states.contains(&to.as_str())) {
            return Err(invalid(format!(
                "an effect names `{unknown}`, which is no state of {}",
                machine.table
            )));
        }
        if let Some(initial) = &machine.initial {
            let reached = machine.reachable(initial);
            if let Some(island) = states.iter().find(|state| !reached.contains(*state)) {
                return Err(invalid(format!("`{island}` cannot be reached from `{initial}`")));
            }
        }
        Ok(machine)
    }
}

impl Machine {
    fn reachable<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::from([from]);
        let mut next = vec![from];
        while let Some(state) = next.pop() {
            next.extend(self.allowed(state).iter().map(String::as_str).filter(|to| reached.insert(to)));
        }
        reached
    }
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
