//! A conditional write of one record: alone, or as a part of a transaction.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure, Update};
use onceward::{Seen, Swap};

use super::item;
use crate::kit;

/// How long a removed record keeps its version. Far more than clocks can differ by.
pub const REMOVED_KEPT: Duration = Duration::from_hours(1);

/// Writes what a swap puts there if everything is as seen; otherwise the error has what is there.
pub(super) fn update(table: &str, swap: &Swap, version: u64, now_us: u64) -> Update {
    let id = &swap.id;
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(item::key(id)))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .expression_attribute_names("#removed", "removed")
        .expression_attribute_names("#state", "state")
        .expression_attribute_values(":version", item::number(version));
    let update = match swap.seen {
        Seen::Absent => update.condition_expression(
            "attribute_not_exists(intent) OR (attribute_exists(#removed) AND version < :version)",
        ),
        Seen::Version(seen) => update
            .condition_expression("version = :seen AND attribute_not_exists(#removed)")
            .expression_attribute_values(":seen", item::number(seen.0)),
    };
    let update = match &swap.new {
        None => {
            let expires = (now_us / 1_000_000).saturating_add(REMOVED_KEPT.as_secs());
            update
                .update_expression(
                    "SET version = :version, #removed = :removed, expires = :expires REMOVE #state, created, updated, due, receipt, due_shard, due_place",
                )
                .expression_attribute_values(":removed", AttributeValue::Bool(true))
                .expression_attribute_values(":expires", item::number(expires))
        }
        Some(record) => {
            let due_us = kit::due_us(now_us, record.due_in);
            let set = "SET version = :version, #state = :state, created = if_not_exists(created, :now), updated = :now, receipt = :receipt, due_shard = :shard, due_place = :place";
            let update = match due_us {
                Some(due_us) => update
                    .update_expression(format!("{set}, due = :due REMOVE #removed, expires"))
                    .expression_attribute_values(":due", item::number(due_us)),
                None => update.update_expression(format!("{set} REMOVE #removed, expires, due")),
            };
            let place = item::place(due_us.unwrap_or(u64::MAX), id);
            update
                .expression_attribute_values(":state", AttributeValue::S(record.state.name().to_owned()))
                .expression_attribute_values(":now", item::number(now_us))
                .expression_attribute_values(":receipt", item::bytes(&record.bytes))
                .expression_attribute_values(":shard", item::shard(record.state, id))
                .expression_attribute_values(":place", item::bytes(&place))
        }
    };
    update.build().expect("its key, its table and its expression are given")
}
