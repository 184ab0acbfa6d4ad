//! Opens a store by its address, such as `postgres://…`. A new store is one entry of [`SCHEMES`].

pub(crate) mod front;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onceward::{Error, ErrorKind, Front, IdentitySource, Result, Store};

#[cfg(feature = "dynamodb")]
use crate::DynamoDbStore;
#[cfg(feature = "embedded")]
use crate::EmbeddedStore;
#[cfg(feature = "etcd")]
use crate::EtcdStore;
use crate::MemoryStore;
#[cfg(feature = "mysql")]
use crate::MySqlStore;
#[cfg(feature = "postgres")]
use crate::PostgresStore;
#[cfg(feature = "redis")]
use crate::RedisStore;
#[cfg(feature = "sqlite")]
use crate::SqliteStore;
use crate::kit::groups::GroupCommits;
#[cfg(any(feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::kit::migrated::Migrated;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::sql::Options;

/// `None` if the feature is off: the scheme is then known, and its address refused with that reason.
macro_rules! in_build {
    ($feature:literal, |$at:ident| $work:expr) => {{
        #[cfg(feature = $feature)]
        let work = Some((|$at| Box::pin(async move { $work })) as Work<_>);
        #[cfg(not(feature = $feature))]
        let work = None;
        work
    }};
}

/// All schemes, whether their stores are part of this build or not.
#[rustfmt::skip]
const SCHEMES: &[Scheme] = &[
    Scheme {
        names: &["memory"], form: "memory:", feature: "",
        description: "In this process, for tests; a restart forgets everything",
        open: Some(|_| Box::pin(async { Ok(Opened::new(MemoryStore::new())) })),
        migrate: None,
    },
    Scheme {
        names: &["dynamodb"], form: "dynamodb://TABLE?region=REGION", feature: "dynamodb",
        description: "A table of Amazon DynamoDB, in one region",
        open: in_build!("dynamodb", |at|
            DynamoDbStore::open(&at.url, crate::dynamodb::Options::default()).await.map(Opened::new)),
        migrate: Migrate::tables(in_build!("dynamodb", |at| DynamoDbStore::migrate(&at.url).await)),
    },
    Scheme {
        names: &["embedded"], form: "embedded:./data", feature: "embedded",
        description: "Files in a folder, for one process",
        open: in_build!("embedded", |at| open_embedded(&at.rest).await),
        migrate: None,
    },
    Scheme {
        names: &["etcd", "etcds"], form: "etcd://HOST:2379", feature: "etcd",
        description: "etcd 3.4 or later, for those who have a consensus store and no database",
        open: in_build!("etcd", |at|
            EtcdStore::open(&at.url, crate::etcd::Options::default()).await.map(Opened::new)),
        migrate: None,
    },
    Scheme {
        names: &["mysql"], form: "mysql://USER@HOST/DATABASE", feature: "mysql",
        description: "MySQL 8.0 or MariaDB 10.6, or later",
        open: in_build!("mysql", |at| {
            let store = MySqlStore::open(&at.url, Options::default()).await?;
            let identity = Some(store.identity());
            Ok(Opened { identity, ..Opened::new(store) })
        }),
        migrate: Migrate::with_identity(
            in_build!("mysql", |at| MySqlStore::migrate(&at.url).await),
            in_build!("mysql", |at| MySqlStore::renew_identity(&at.url).await)),
    },
    Scheme {
        names: &["postgres", "postgresql"], form: "postgres://USER@HOST/DATABASE", feature: "postgres",
        description: "PostgreSQL 13 or later",
        open: in_build!("postgres", |at| {
            let store = PostgresStore::open(&at.url, Options::default()).await?;
            let identity = Some(store.identity());
            Ok(Opened { identity, ..Opened::new(store) })
        }),
        migrate: Migrate::with_identity(
            in_build!("postgres", |at| PostgresStore::migrate(&at.url).await),
            in_build!("postgres", |at| PostgresStore::renew_identity(&at.url).await)),
    },
    Scheme {
        names: &["redis", "rediss"], form: "redis://HOST/0?accept=volatile", feature: "redis",
        description: "Redis 6.2 or Valkey, or later; it can lose receipts",
        open: in_build!("redis", |at| open_redis(&at.url).await),
        migrate: None,
    },
    Scheme {
        names: &["sqlite"], form: "sqlite:FILE", feature: "sqlite",
        description: "An SQLite file, for processes on one machine",
        open: in_build!("sqlite", |at|
            SqliteStore::open(&at.rest, Options::default()).await.map(Opened::new)),
        migrate: Migrate::tables(in_build!("sqlite", |at| SqliteStore::migrate(&at.rest).await)),
    },
];

struct Scheme {
    names: &'static [&'static str],
    /// An example of the address. If it has something after the colon, an address must have it too.
    form: &'static str,
    description: &'static str,
    /// The cargo feature that it needs; empty if it needs none.
    feature: &'static str,
    open: Option<Work<Opened>>,
    /// Only databases have tables.
    migrate: Option<Migrate>,
}

/// What `onceward migrate` does to a database.
#[derive(Clone, Copy)]
struct Migrate {
    #[cfg_attr(
        not(any(feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite")),
        expect(dead_code, reason = "`migrate` is not part of a build without databases")
    )]
    tables: Work<Migrated>,
    /// Its `--new-identity`; `None` where no front can be in front of the store.
    identity: Option<Work<()>>,
}

impl Migrate {
    const fn tables(tables: Option<Work<Migrated>>) -> Option<Self> {
        Self::with_identity(tables, None)
    }

    const fn with_identity(tables: Option<Work<Migrated>>, identity: Option<Work<()>>) -> Option<Self> {
        match tables {
            Some(tables) => Some(Self { tables, identity }),
            None => None,
        }
    }
}

type Work<T> = fn(Address) -> Pin<Box<dyn Future<Output = Result<T>> + Send>>;

#[cfg(not(any(feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite")))]
type Migrated = std::convert::Infallible;

/// An address, and the part after its first colon.
#[derive(Clone, Debug)]
struct Address {
    url: String,
    rest: String,
}

/// A store that was opened, and what it can tell about itself.
#[derive(Clone)]
#[non_exhaustive]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Reads the sizes of the write groups so far, if the store writes in groups. It does not keep the store open.
    pub group_commits: Option<Arc<dyn Fn() -> GroupCommits + Send + Sync>>,
    /// The possible losses of the store, in a sentence for operators, if the address has accepted that. The engine then
    /// wants [`accept_volatile`](onceward::OncewardBuilder::accept_volatile).
    pub accepted_losses: Option<String>,
    /// The identity of the store, if it can have a front.
    pub identity: Option<Arc<dyn IdentitySource>>,
    /// The volatile front that the address names, for [`with_front`](onceward::OncewardBuilder::with_front).
    pub front: Option<Front>,
}

impl Opened {
    fn new(store: impl Store) -> Self {
        Self {
            store: Arc::new(store),
            group_commits: None,
            accepted_losses: None,
            identity: None,
            front: None,
        }
    }
}

/// Redis is a record of truth only for those who have read what it can lose.
#[cfg(feature = "redis")]
async fn open_redis(url: &str) -> Result<Opened> {
    let accepted = crate::redis::is_volatile_accepted(url)?;
    let store = RedisStore::open(url, crate::redis::Options::default()).await?;
    let losses = store.losses();
    if !accepted {
        let detail = format!(
            "{losses}. Use a store that loses nothing, such as postgres://…, or add `accept=volatile` to the address, as in redis://host/0?accept=volatile, if that is acceptable"
        );
        return Err(Error::new(ErrorKind::Unfit, detail));
    }
    Ok(Opened { accepted_losses: Some(losses), ..Opened::new(store) })
}

#[cfg(feature = "embedded")]
async fn open_embedded(path: &str) -> Result<Opened> {
    let store = EmbeddedStore::open(path, crate::embedded::Options::default()).await?;
    let sizes = store.sizes();
    Ok(Opened { group_commits: Some(Arc::new(move || sizes.read())), ..Opened::new(store) })
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("store", &self.store.caps().name).finish_non_exhaustive()
    }
}

/// Opens the store that an address names: `memory:`, `embedded:./data`, ….
///
/// A volatile front that the address names is left out, which costs speed only; [`open_with_metrics`] gives it too.
///
/// Dropping the future leaves the opening to finish by itself; what it opened is closed again.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_with_metrics(url).await.map(|opened| opened.store)
}

/// As [`open`], with its front and what the store can tell about itself: for programs that publish metrics.
pub async fn open_with_metrics(url: &str) -> Result<Opened> {
    let (store_url, front_url) = front::take(url)?;
    let (scheme, address) = find(&store_url)?;
    let name = address.name().to_owned();
    let open = scheme.open.ok_or_else(|| not_in_build(scheme, &address))?;
    let form = scheme.form;
    match (form.ends_with(':'), address.rest.is_empty()) {
        (true, false) => Err(invalid(format!("`{form}` takes nothing behind it, not `{}`", address.rest))),
        (false, true) => Err(invalid(format!("`{name}:` needs something behind it, as in `{form}`"))),
        _ => {
            let opened = open(address).await?;
            let Some(front_url) = front_url else { return Ok(opened) };
            let front = front::open(&front_url, &name, opened.identity.clone()).await?;
            Ok(Opened { front: Some(front), ..opened })
        }
    }
}

/// Migrates the tables of the database that an address names, and returns what was done. For databases only; the others
/// have no tables.
#[cfg(any(feature = "dynamodb", feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub async fn migrate(url: &str) -> Result<Migrated> {
    let (url, _) = front::take(url)?;
    let (scheme, address) = find(&url)?;
    if scheme.open.is_none() {
        return Err(not_in_build(scheme, &address));
    }
    let Some(migrate) = scheme.migrate else {
        let detail = format!("`{}:` has no tables to migrate; this build opens {}", address.name(), known());
        return Err(invalid(detail));
    };
    (migrate.tables)(address).await
}

/// Gives the database that an address names another identity: no entry that any volatile front has for it fits any more.
/// After it was restored from a backup. For PostgreSQL, MySQL and MariaDB.
pub async fn renew_identity(url: &str) -> Result<()> {
    let (url, _) = front::take(url)?;
    let (scheme, address) = find(&url)?;
    if scheme.open.is_none() {
        return Err(not_in_build(scheme, &address));
    }
    let Some(renew) = identity_of(scheme) else {
        let having = SCHEMES.iter().filter(|scheme| identity_of(scheme).is_some());
        let having = having.map(|scheme| scheme.form).collect::<Vec<_>>().join(", ");
        let having = if having.is_empty() { "none of this build" } else { &having };
        let detail =
            format!("`{}:` has no identity to renew; with one, for fronts: {having}", address.name());
        return Err(invalid(detail));
    };
    renew(address).await
}

fn identity_of(scheme: &Scheme) -> Option<Work<()>> {
    scheme.migrate.and_then(|migrate| migrate.identity)
}

/// A form of address that this build can open, for help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressForm {
    /// As it is written, such as `postgres://USER@HOST/DATABASE`.
    pub form: &'static str,
    /// A short description.
    pub description: &'static str,
    /// Whether it has tables to migrate.
    pub is_database: bool,
}

/// The forms of address that [`open`] takes in this build.
pub fn address_forms() -> impl Iterator<Item = AddressForm> {
    SCHEMES.iter().filter(|scheme| scheme.open.is_some()).map(|scheme| AddressForm {
        form: scheme.form,
        description: scheme.description,
        is_database: scheme.migrate.is_some(),
    })
}

fn not_in_build(scheme: &Scheme, address: &Address) -> Error {
    let (name, feature) = (address.name(), scheme.feature);
    invalid(format!("`{name}:` is not part of this build; build it with the cargo feature `{feature}`"))
}

fn find(url: &str) -> Result<(&'static Scheme, Address)> {
    let (name, rest) = url.split_once(':').unwrap_or((url, ""));
    let scheme = SCHEMES
        .iter()
        .find(|scheme| scheme.names.contains(&name))
        .ok_or_else(|| invalid(format!("no store is known as `{name}:`; this build opens {}", known())))?;
    Ok((scheme, Address { url: url.to_owned(), rest: rest.to_owned() }))
}

/// The forms of address that this build can open.
fn known() -> String {
    address_forms().map(|form| form.form).collect::<Vec<_>>().join(", ")
}

impl Address {
    fn name(&self) -> &str {
        self.url.split(':').next().unwrap_or_default()
    }
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::Invalid, detail)
}
