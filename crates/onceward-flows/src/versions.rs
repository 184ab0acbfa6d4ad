//! Monotonic versions of entities, for messages that carry one: a message that is older than what was applied is
//! recognised, and so is a gap. In the transaction of the handler.

mod rule;

use onceward::{Error, ErrorKind, Result};
use onceward_stores::sql::{Cell, SqlTransaction, Value};

use crate::consumer::Failure;
use crate::statements::statements;

pub use rule::{VersionRule, Versions, version_header};

/// Which version an entity may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirstVersion {
    /// Any: the first message that comes is the beginning.
    Any,
    /// Only 1: a higher one is a gap.
    One,
}

/// A version, compared with the one that was applied.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It is the next one, and is recorded as applied: apply the message.
    Applied,
    /// It is the one that was applied last.
    Duplicate,
    /// It is older than the one that was applied last.
    Stale,
    /// Versions between are missing. Nothing was recorded. Wait (return [`Failure::early`]), fetch the whole state,
    /// or, for messages that carry the whole state, [`advance_to`] and apply.
    Gap {
        /// The version that should have come.
        expected: u64,
    },
}

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

/// The treatment of a message whose predecessors are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnGap {
    /// It fails as [`Failure::early`] and is tried again: the others may be on their way, and go ahead of it also where they
    /// have its ordering key. When its tries are used up it is a dead letter.
    Wait,
    /// The handler fetches what is missing, see [`VersionAction::Fetch`] and [`Versions::advance_or_fetch`].
    Fetch,
    /// It is applied: for messages that carry the whole state.
    Apply,
}

/// The treatment of a message that has a version.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionAction {
    /// Apply it. Its version is recorded.
    Apply,
    /// Nothing: it, or a later one, was applied before.
    Skip,
    /// Fetch the whole state of the entity, write it, and record its version with [`advance_to`].
    Fetch {
        /// The version that should have come.
        expected: u64,
    },
}

/// [`advance`] with a rule for gaps, for handlers: `if advance_or(tx, "stock", item, version, FirstVersion::One,
/// OnGap::Wait).await? == VersionAction::Apply { … }`.
pub async fn advance_or<T: SqlTransaction>(
    tx: &mut T,
    scope: &str,
    entity: &str,
    version: u64,
    first: FirstVersion,
    on_gap: OnGap,
) -> Result<VersionAction, Failure> {
    match (advance(tx, scope, entity, version, first).await?, on_gap) {
        (Advance::Applied, _) => Ok(VersionAction::Apply),
        (Advance::Duplicate | Advance::Stale, _) => Ok(VersionAction::Skip),
        (Advance::Gap { expected }, OnGap::Wait) => Err(Failure::early(format!(
            "version {version} of `{entity}` has come, and version {expected} has not"
        ))),
        (Advance::Gap { expected }, OnGap::Fetch) => Ok(VersionAction::Fetch { expected }),
        (Advance::Gap { .. }, OnGap::Apply) => {
            advance_to(tx, scope, entity, version).await?;
            Ok(VersionAction::Apply)
        }
    }
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
    let of = statements(tx.dialect())?;
    let found = match of.find_version.fetch(tx, &key).await? {
        Some(row) => Some(row),
        // There must be a row to lock, or two first versions would be applied at the same time.
        None => {
            of.begin_version.fetch(tx, &key).await?;
            of.find_version.fetch(tx, &key).await?
        }
    };
    match found.as_deref() {
        Some([Cell::Int(version)]) => Ok(version.unsigned_abs()),
        _ => Err(Error::new(ErrorKind::Damaged, "the row of a version cannot be read")),
    }
}

async fn set<T: SqlTransaction>(tx: &mut T, scope: &str, entity: &str, version: u64) -> Result<()> {
    let version = i64::try_from(version).expect("it was checked");
    let values = [Value::Text(scope), Value::Text(entity), Value::Int(Some(version))];
    statements(tx.dialect())?.set_version.fetch(tx, &values).await.map(drop)
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
