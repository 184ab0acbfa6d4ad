//! The stores, from outside: one binary, a module per topic.

mod address;
mod behaviour;
mod conformance;
mod support;

#[cfg(any(
    feature = "dynamodb",
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis"
))]
#[path = "../servers/mod.rs"]
mod servers;

#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod bank;
#[cfg(feature = "postgres")]
mod bloat;
#[cfg(feature = "embedded")]
mod bounds;
#[cfg(feature = "embedded")]
mod crash;
#[cfg(feature = "embedded")]
mod damage;
#[cfg(any(feature = "dynamodb", feature = "etcd"))]
mod dated_proxy;
#[cfg(feature = "embedded")]
mod disk_full;
#[cfg(all(feature = "embedded", feature = "mysql", feature = "sqlite"))]
mod disk_full_sql;
#[cfg(feature = "embedded")]
mod due;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "dynamodb")]
mod dynamodb_proxy;
#[cfg(feature = "dynamodb")]
mod dynamodb_transaction;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "embedded", feature = "etcd", feature = "redis"))]
mod etcd_kills;
#[cfg(feature = "embedded")]
mod folder;
#[cfg(all(feature = "embedded", feature = "mysql", feature = "postgres", feature = "redis"))]
mod front;
#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod idempotent_writes;
#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod interleavings;
#[cfg(all(feature = "embedded", feature = "etcd", feature = "redis"))]
mod kill_load;
#[cfg(feature = "embedded")]
mod model;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(all(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis"))]
mod opening;
#[cfg(any(feature = "dynamodb", feature = "etcd"))]
mod paused;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "embedded")]
mod readme;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(feature = "embedded", feature = "etcd", feature = "redis"))]
mod redis_kills;
#[cfg(feature = "embedded")]
mod restart;
#[cfg(feature = "embedded")]
mod rotation;
#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod sql_conformance;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod sqlx;
#[cfg(all(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis", feature = "tls"))]
mod tls;
#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod transact;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod trouble;
#[cfg(all(feature = "sqlx-mysql", feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod worker;
