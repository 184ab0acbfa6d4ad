//! Monotonic versions of entities, for messages that carry one: a message that is older than what was applied is
//! recognised, and so is a gap. In the transaction of the handler.

use onceward::{Error, ErrorKind, Result};
use onceward_stores::sql::{Cell, SqlTransaction, Value};

/// Which version an entity may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstVersion {
    /// Any: the first message that comes is the beginning.
    Any,
    /// Only 1: a higher one is a gap.
    One,
}

/// What a version is, compared with what was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It is the next one, and is recorded as applied: apply the message.
    Applied,
    /// It is the one that was applied last.
    Duplicate,
    /// It is older than the one that was applied last.
    Stale,
    /// Versions between are missing. Nothing was recorded. Wait (return a transient failure), fetch the whole state,
    /// or, for messages that carry the whole state, [`advance_to`] and apply.
    Gap {
        /// The version that should have come.
        expected: u64,
    },
}

const FIND: &str = "SELECT version FROM onceward_versions WHERE scope = $1 AND entity = $2 FOR UPDATE";
const BEGIN: &str =
    "INSERT INTO onceward_versions (scope, entity, version) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING";
const SET: &str =
    "UPDATE onceward_versions SET version = $3, updated = clock_timestamp() WHERE scope = $1 AND entity = $2";

/// Advances an entity to a version, in the caller's transaction. `scope` keeps consumers apart that have the same
/// entities. Two transactions on one entity wait for each other.
pub async fn advance<T: SqlTransaction>(
    tx: &mut T,
    scope: &str,
    entity: &str,
    version: u64,
    first: FirstVersion,
) -> Result<Advance> {
    check(version)?;
    let advance = decide(current(tx, scope, entity).await?, version, first);
    if advance == Advance::Applied {
        set(tx, scope, entity, version).await?;
    }
    Ok(advance)
}

/// Records a version as applied, over a gap: for a message that carries the whole state, or after the state was fetched.
/// An older version than the current one changes nothing and is [`Advance::Stale`].
pub async fn advance_to<T: SqlTransaction>(
    tx: &mut T,
    scope: &str,
    entity: &str,
    version: u64,
) -> Result<Advance> {
    check(version)?;
    let advance = match decide(current(tx, scope, entity).await?, version, FirstVersion::Any) {
        Advance::Gap { .. } => Advance::Applied,
        other => other,
    };
    if advance == Advance::Applied {
        set(tx, scope, entity, version).await?;
    }
    Ok(advance)
}

/// `current` is 0 if nothing was applied.
fn decide(current: u64, version: u64, first: FirstVersion) -> Advance {
    match version {
        _ if current == 0 && first == FirstVersion::Any => Advance::Applied,
        version if version == current => Advance::Duplicate,
        version if version < current => Advance::Stale,
        version if version == current + 1 => Advance::Applied,
        _ => Advance::Gap { expected: current + 1 },
    }
}

/// The version that was applied last, locked; 0 if there is none.
async fn current<T: SqlTransaction>(tx: &mut T, scope: &str, entity: &str) -> Result<u64> {
    let key = [Value::Text(scope), Value::Text(entity)];
    let found = match tx.fetch(FIND, &key).await? {
        Some(row) => Some(row),
        // There must be a row to lock, or two first versions would be applied at the same time.
        None => {
            tx.fetch(BEGIN, &key).await?;
            tx.fetch(FIND, &key).await?
        }
    };
    match found.as_deref() {
        Some([Cell::Int(version)]) => Ok(version.unsigned_abs()),
        _ => Err(Error::new(ErrorKind::Damaged, "the row of a version cannot be read")),
    }
}

async fn set<T: SqlTransaction>(tx: &mut T, scope: &str, entity: &str, version: u64) -> Result<()> {
    let version = i64::try_from(version).expect("it was checked");
    tx.fetch(SET, &[Value::Text(scope), Value::Text(entity), Value::Int(Some(version))]).await.map(drop)
}

fn check(version: u64) -> Result<()> {
    if version == 0 || i64::try_from(version).is_err() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "a version is a whole number from 1 to 9223372036854775807",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Advance::{Applied, Duplicate, Gap, Stale};
    use super::FirstVersion::{Any, One};
    use super::*;

    #[test]
    fn versions_are_compared() {
        let rows = [
            (0, 1, One, Applied),
            (0, 7, One, Gap { expected: 1 }),
            (0, 7, Any, Applied),
            (7, 7, Any, Duplicate),
            (7, 6, Any, Stale),
            (7, 8, Any, Applied),
            (7, 9, Any, Gap { expected: 8 }),
            (7, 8, One, Applied),
            (7, 9, One, Gap { expected: 8 }),
        ];
        for (current, version, first, expected) in rows {
            assert_eq!(decide(current, version, first), expected, "{current} {version} {first:?}");
        }
    }
}
