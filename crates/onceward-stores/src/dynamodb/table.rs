//! The table: created by `onceward migrate`, checked when the store is opened.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, TableDescription, TableStatus, TimeToLiveSpecification,
    TimeToLiveStatus,
};
use onceward::{Error, ErrorKind, Result};

use super::errors::{CallEffect, failed};

/// A key: the names of its attributes, and their types.
type Key = [(&'static str, ScalarAttributeType); 2];

const KEY: Key = [("intent", ScalarAttributeType::S), ("operation", ScalarAttributeType::S)];
/// The index, and its key.
const DUE: &str = "due";
const DUE_KEY: Key = [("due_shard", ScalarAttributeType::S), ("due_place", ScalarAttributeType::B)];
/// The attribute that says when DynamoDB may delete what was removed.
const EXPIRES: &str = "expires";
/// How long a new table may take.
const CREATE_MAX: Duration = Duration::from_mins(2);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Refuses a table that cannot keep receipts. That its time to live is off is a warning: it only grows.
pub(super) async fn check(client: &Client, table: &str) -> Result<()> {
    is_fit(client, table).await?;
    match time_to_live(client, table).await {
        Ok(TimeToLive::Ours) => {}
        Ok(TimeToLive::Off) => tracing::warn!(
            table,
            "the table has no time to live on `{EXPIRES}`, so what was removed stays; switch it on with `onceward migrate`"
        ),
        Ok(TimeToLive::On(other)) => tracing::warn!(
            table,
            "the table has its time to live on `{other}` and not on `{EXPIRES}`, so what was removed stays; change it"
        ),
        // A service without this right works all the same.
        Err(error) => tracing::debug!(table, %error, "the time to live of the table is not known"),
    }
    Ok(())
}

async fn is_fit(client: &Client, table: &str) -> Result<()> {
    let described = client.describe_table().table_name(table).send().await;
    let described = described.map_err(|error| failed(table, CallEffect::Reads, &error))?;
    fit(table, described.table())
}

/// What DynamoDB deletes by itself.
enum TimeToLive {
    Ours,
    Off,
    /// It goes by another attribute.
    On(String),
}

async fn time_to_live(client: &Client, table: &str) -> Result<TimeToLive> {
    let described = client.describe_time_to_live().table_name(table).send().await;
    let described = described.map_err(|error| failed(table, CallEffect::Reads, &error))?;
    let Some(said) = described.time_to_live_description() else { return Ok(TimeToLive::Off) };
    Ok(match (said.time_to_live_status(), said.attribute_name()) {
        (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), Some(name)) if name == EXPIRES => {
            TimeToLive::Ours
        }
        (Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling), name) => {
            TimeToLive::On(name.unwrap_or_default().to_owned())
        }
        _ => TimeToLive::Off,
    })
}

fn fit(table: &str, described: Option<&TableDescription>) -> Result<()> {
    let refused = |kind, why: &str| Err(Error::new(kind, format!("DynamoDB table `{table}` {why}")));
    let Some(described) = described else { return refused(ErrorKind::Unavailable, "says nothing of itself") };
    if !described.replicas().is_empty() || described.global_table_version().is_some() {
        return refused(
            ErrorKind::Unfit,
            "is a global table, in which the last writer wins: two regions would both run an intent; use a table of one region",
        );
    }
    let has_key = |keys: &[KeySchemaElement], wanted: &Key| {
        let types = described.attribute_definitions();
        let is = |key: &KeySchemaElement, name: &str, role: &KeyType, kind: &ScalarAttributeType| {
            key.attribute_name() == name
                && key.key_type() == role
                && types.iter().any(|a| a.attribute_name() == name && a.attribute_type() == kind)
        };
        let [(partition, first), (sort, second)] = wanted;
        matches!(keys, [one, other]
            if is(one, partition, &KeyType::Hash, first) && is(other, sort, &KeyType::Range, second))
    };
    let has_index = described
        .global_secondary_indexes()
        .iter()
        .any(|index| index.index_name() == Some(DUE) && has_key(index.key_schema(), &DUE_KEY));
    if !has_key(described.key_schema(), &KEY) || !has_index {
        return refused(
            ErrorKind::Foreign,
            "has another shape than a table of onceward's; use another name, and create it with `onceward migrate`",
        );
    }
    match described.table_status() {
        Some(TableStatus::Active | TableStatus::Updating) => Ok(()),
        _ => refused(ErrorKind::Unavailable, "is not ready yet; try again"),
    }
}

/// Creates the table if it does not exist, waits until it is ready, switches its time to live on, and returns whether it
/// was created. What an earlier call did not finish is finished.
pub(super) async fn create(client: &Client, table: &str) -> Result<bool> {
    let attributes = KEY.iter().chain(&DUE_KEY).map(|(name, kind)| {
        let attribute = AttributeDefinition::builder().attribute_name(*name).attribute_type(kind.clone());
        attribute.build().expect("both are given")
    });
    let due = GlobalSecondaryIndex::builder()
        .index_name(DUE)
        .set_key_schema(Some(schema(&DUE_KEY)))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build());
    let created = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(attributes.collect()))
        .set_key_schema(Some(schema(&KEY)))
        .global_secondary_indexes(due.build().expect("all is given"))
        .send()
        .await;
    let is_new = match created {
        Ok(_) => true,
        Err(error)
            if error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception) =>
        {
            false
        }
        Err(error) => return Err(failed(table, CallEffect::Writes, &error)),
    };
    let deadline = tokio::time::Instant::now() + CREATE_MAX;
    while let Err(error) = is_fit(client, table).await {
        if error.kind() != ErrorKind::Unavailable || tokio::time::Instant::now() > deadline {
            return Err(error);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    match time_to_live(client, table).await? {
        TimeToLive::Ours => {}
        TimeToLive::Off => switch_time_to_live_on(client, table).await?,
        TimeToLive::On(other) => {
            let detail = format!(
                "DynamoDB table `{table}` has its time to live on `{other}`; switch that off, and run `onceward migrate` again an hour later (DynamoDB allows no change before)"
            );
            return Err(Error::new(ErrorKind::Unfit, detail));
        }
    }
    Ok(is_new)
}

async fn switch_time_to_live_on(client: &Client, table: &str) -> Result<()> {
    let on = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES).build();
    let called = client
        .update_time_to_live()
        .table_name(table)
        .time_to_live_specification(on.expect("both are given"))
        .send()
        .await;
    called.map(drop).map_err(|error| failed(table, CallEffect::Writes, &error))
}

fn schema(key: &Key) -> Vec<KeySchemaElement> {
    let element = |(name, _): &(&str, _), role| {
        KeySchemaElement::builder().attribute_name(*name).key_type(role).build().expect("both are given")
    };
    vec![element(&key[0], KeyType::Hash), element(&key[1], KeyType::Range)]
}
