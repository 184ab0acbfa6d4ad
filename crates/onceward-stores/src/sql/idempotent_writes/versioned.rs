//! A write that depends on the version that the caller has seen: the comparison and the write are one statement.
//!
//! What HTTP calls `If-Match` and `If-None-Match: *` arrives here as [`If`]; tags are passed without their quotes.

use std::time::{SystemTime, UNIX_EPOCH};

use onceward::{Error, ErrorKind, Result};

use super::insert::{Inserted, insert};
use super::statement::{changes, check_names, exact, invalid, locked, placeholder, placeholders, text};
use crate::sql::join::{SqlTransaction, Value};

/// A table whose rows have a tag, and how to find the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versioned<'a> {
    /// The table.
    pub table: &'a str,
    /// The column by which a row is found; it must be unique.
    pub key: &'a str,
    /// The column with the tag.
    pub tag: TagColumn<'a>,
}

impl<'a> Versioned<'a> {
    /// The table `table` with a column of tags, whose rows are found by the column `key`.
    pub const fn new(table: &'a str, key: &'a str, tag: TagColumn<'a>) -> Self {
        Self { table, key, tag }
    }
}

/// The column that identifies the version of a row. Every write gives the row a tag that it never had before, so tags
/// are strong validators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TagColumn<'a> {
    /// A whole number (`BIGINT`) that grows by one with every write. A row that [`If::Absent`] makes begins at the
    /// microseconds since 1970, so that a row that is deleted and made again does not repeat a tag of the deleted one.
    Version(&'a str),
    /// A text of at least 32 characters; every write puts a new random one there. It says nothing about the number of
    /// writes.
    Random(&'a str),
}

/// The condition of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum If<'a> {
    /// The row has one of these tags (`If-Match: "…", "…"`).
    Match(&'a [&'a str]),
    /// There is such a row (`If-Match: *`).
    Exists,
    /// There is no such row (`If-None-Match: *`): it is made.
    Absent,
}

/// The result of a conditional write.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was written. The row has this tag now.
    Now(String),
    /// It was not. The row has this tag; `None` if there is no such row.
    Conflict(Option<String>),
}

/// Tags in one condition, at most.
const TAGS_MAX: usize = 256;
/// How often a row may be replaced by one with an expected tag while this looks at it.
const ROUNDS_MAX: usize = 8;

/// Writes a row if it is as the caller expects, in one statement of the caller's transaction, and gives it a new tag.
///
/// Of two callers that have seen the same version, one gets [`Written::Now`] and the other [`Written::Conflict`]:
/// no update is lost, and no conflict is reported that there was not.
///
/// ```
/// use onceward::Result;
/// use onceward_stores::sql::{If, SqlTransaction, TagColumn, Value, Versioned, Written, versioned};
///
/// async fn rename<T: SqlTransaction>(tx: &mut T, id: &str, seen: &str, title: &str) -> Result<()> {
///     const DOCUMENTS: Versioned<'static> =
///         Versioned::new("documents", "id", TagColumn::Version("version"));
///     let change = [("title", Value::Text(title))];
///     match versioned(tx, DOCUMENTS, Value::Text(id), If::Match(&[seen]), &change).await? {
///         Written::Now(_tag) => {}          // the `ETag` of the answer
///         Written::Conflict(_current) => {} // 412: another writer was quicker
///     }
///     Ok(())
/// }
/// ```
pub async fn versioned<T: SqlTransaction>(
    tx: &mut T,
    of: Versioned<'_>,
    key: Value<'_>,
    condition: If<'_>,
    change: &[(&str, Value<'_>)],
) -> Result<Written> {
    let (TagColumn::Version(tag) | TagColumn::Random(tag)) = of.tag;
    check_names(change.iter().map(|(column, _)| *column).chain([of.table, of.key, tag]))?;
    if let Some((taken, _)) = change.iter().find(|(column, _)| *column == of.key || *column == tag) {
        return Err(invalid(format!(
            "`{taken}` is the key or the tag: it cannot be among the values to set"
        )));
    }
    for _ in 0..ROUNDS_MAX {
        let written = match condition {
            If::Absent => create(tx, of, key, change).await?,
            If::Exists => update(tx, of, key, None, change).await?,
            If::Match(tags) => update(tx, of, key, Some(&expected(of.tag, tags)?), change).await?,
        };
        if let Some(tag) = written {
            return Ok(Written::Now(tag));
        }
        let current = locked(tx, of.table, tag, of.key, key).await?.and_then(text);
        if !holds(condition, current.as_deref()) {
            return Ok(Written::Conflict(current));
        }
    }
    Err(Error::new(ErrorKind::Conflict, format!("a row of {} came and went while it was written", of.table)))
}

fn holds(condition: If<'_>, current: Option<&str>) -> bool {
    match condition {
        If::Match(tags) => current.is_some_and(|current| tags.contains(&current)),
        If::Exists => current.is_some(),
        If::Absent => current.is_none(),
    }
}

/// A tag as the column has it.
enum Tag<'a> {
    Number(i64),
    Text(&'a str),
}

impl Tag<'_> {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Number(number) => Value::Int(Some(*number)),
            Self::Text(text) => Value::Text(text),
        }
    }
}

/// The tags that the column can have. A text that is no version of ours, such as `07`, matches no row.
fn expected<'a>(column: TagColumn<'_>, tags: &[&'a str]) -> Result<Vec<Tag<'a>>> {
    if tags.len() > TAGS_MAX {
        return Err(invalid(format!("{} tags in one condition, {TAGS_MAX} are the most", tags.len())));
    }
    let version = |tag: &&str| tag.parse().ok().filter(|number: &i64| number.to_string() == **tag);
    Ok(match column {
        TagColumn::Version(_) => tags.iter().filter_map(version).map(Tag::Number).collect(),
        TagColumn::Random(_) => tags.iter().map(|tag| Tag::Text(tag)).collect(),
    })
}

async fn create<T: SqlTransaction>(
    tx: &mut T,
    of: Versioned<'_>,
    key: Value<'_>,
    change: &[(&str, Value<'_>)],
) -> Result<Option<String>> {
    let (fresh, first) = (random_tag()?, first_version()?);
    let (column, value, tag) = match of.tag {
        TagColumn::Version(column) => (column, Value::Int(Some(first)), first.to_string()),
        TagColumn::Random(column) => (column, Value::Text(&fresh), fresh.clone()),
    };
    let row: Vec<_> = [(of.key, key), (column, value)].into_iter().chain(change.iter().copied()).collect();
    Ok((insert(tx, of.table, &row).await? == Inserted::New).then_some(tag))
}

/// Changes a row that has one of these tags, or any.
async fn update<T: SqlTransaction>(
    tx: &mut T,
    of: Versioned<'_>,
    key: Value<'_>,
    tags: Option<&[Tag<'_>]>,
    change: &[(&str, Value<'_>)],
) -> Result<Option<String>> {
    if tags.is_some_and(<[_]>::is_empty) {
        return Ok(None);
    }
    let dialect = tx.dialect();
    let fresh = random_tag()?;
    let (column, set, fresh_value) = match of.tag {
        TagColumn::Version(column) => (column, format!("{column} = {column} + 1"), None),
        TagColumn::Random(column) => {
            let set = format!("{column} = {}", placeholder(dialect, change.len() + 1));
            (column, set, Some(Value::Text(fresh.as_str())))
        }
    };
    let sets: Vec<String> = (change.iter().zip(placeholders(dialect, 1, change.len())))
        .map(|((column, _), value)| format!("{column} = {value}"))
        .chain([set])
        .collect();
    let by = change.len() + usize::from(fresh_value.is_some()) + 1;
    let tags = tags.unwrap_or_default();
    let has_tag = match placeholders(dialect, by + 1, tags.len()).join(", ") {
        none if none.is_empty() => none,
        tags => match of.tag {
            TagColumn::Version(_) => format!(" AND {column} IN ({tags})"),
            TagColumn::Random(_) => format!(" AND {} IN ({tags})", exact(dialect, column)),
        },
    };
    let (table, sets, key_column) = (of.table, sets.join(", "), of.key);
    let by = placeholder(dialect, by);
    let statement = format!("UPDATE {table} SET {sets} WHERE {key_column} = {by}{has_tag}");
    let change = change.iter().map(|(_, value)| *value);
    let values: Vec<Value<'_>> =
        change.chain(fresh_value).chain([key]).chain(tags.iter().map(Tag::value)).collect();
    if !changes(tx, &statement, &values).await? {
        return Ok(None);
    }
    match of.tag {
        TagColumn::Random(_) => Ok(Some(fresh)),
        // The row is ours until the transaction ends.
        TagColumn::Version(_) => Ok(locked(tx, of.table, column, of.key, key).await?.and_then(text)),
    }
}

/// A number above every version that a deleted row with the same key can have had, unless it was written more than a
/// million times a second.
fn first_version() -> Result<i64> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros())
        .map_err(|_| invalid("the clock is after the year 290,000".to_owned()))
}

fn random_tag() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
