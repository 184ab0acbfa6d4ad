//! Checks of unusual ids: long, odd or similar. Each has its own record and is returned unchanged.

use onceward::{Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, SCOPE_BYTES_MAX};

use super::trial::{Checked, Trial, ensure, everything, held, id_of};

pub(super) async fn at_their_bounds(trial: Trial) -> Checked {
    let longest = |fill: &str| {
        id_of(&fill.repeat(SCOPE_BYTES_MAX), &fill.repeat(OPERATION_BYTES_MAX), &fill.repeat(KEY_BYTES_MAX))
    };
    // Alike up to their very last character: an index on a prefix would take them for one.
    let last = |key_end: &str| {
        let key = "k".repeat(KEY_BYTES_MAX - 1) + key_end;
        id_of(&"s".repeat(SCOPE_BYTES_MAX), &"o".repeat(OPERATION_BYTES_MAX), &key)
    };
    let ids =
        [longest("a"), longest("~"), longest(" "), longest("'"), last("1"), last("2"), id_of("s", "o", "k")];
    distinct(&trial, &ids).await
}

pub(super) async fn of_all_printable_characters(trial: Trial) -> Checked {
    let all: String = (0x20..=0x7eu8).map(char::from).collect();
    let in_operation = all.replace('#', "");
    let mut ids = vec![id_of(&all, &in_operation, &all)];
    for character in all.chars() {
        let text = character.to_string();
        ids.push(id_of("scope", "operation", &text));
        ids.push(id_of(&text, "operation", "key"));
        if character != '#' {
            ids.push(id_of("scope", &text, "key"));
        }
    }
    distinct(&trial, &ids).await
}

/// Collations that fold case or ignore blanks at the end would take two intents for one.
pub(super) async fn that_differ_in_case_and_blanks(trial: Trial) -> Checked {
    let words = ["order", "Order", "ORDER", "order ", " order", "order  ", "or der", "0rder"];
    let ids: Vec<Id> = words
        .iter()
        .flat_map(|word| [id_of(word, "o", "k"), id_of("s", word, "k"), id_of("s", "o", word)])
        .collect();
    distinct(&trial, &ids).await
}

pub(super) async fn that_would_collide_if_joined(trial: Trial) -> Checked {
    let mut ids = vec![
        id_of("ab", "c", "d"),
        id_of("a", "bc", "d"),
        id_of("a", "b", "cd"),
        id_of("abc", "d", "d"),
        id_of("1", "11", "111"),
        id_of("11", "1", "111"),
        id_of("111", "1", "11"),
        id_of("1", "111", "11"),
    ];
    for separator in ["/", ":", "|", ",", ".", " ", "\\", "\"", "'", "-", "_", "%", "%2F", "{}"] {
        ids.push(id_of(&format!("x{separator}y"), "z", "w"));
        ids.push(id_of("x", &format!("y{separator}z"), "w"));
        ids.push(id_of("x", "y", &format!("z{separator}w")));
        ids.push(id_of(&format!("x{separator}"), "y", &format!("z{separator}w")));
        ids.push(id_of("x", &format!("{separator}y"), &format!("z{separator}w")));
    }
    distinct(&trial, &ids).await
}

pub(super) async fn of_steps(trial: Trial) -> Checked {
    let parent = id_of("scope", "POST /charges", "order-1");
    let step = parent.step("email")?;
    let deeper = step.step("send")?;
    distinct(&trial, &[parent.clone(), step, deeper, parent.step("email send")?]).await
}

/// Every id gets a record of its own, is loaded by itself, and comes back from a scan as it was.
async fn distinct(trial: &Trial, ids: &[Id]) -> Checked {
    let mut versions = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        versions.push(trial.create(id, held(number.to_string())).await?);
    }
    for (number, id) in ids.iter().enumerate() {
        trial.find_as(id, versions[number], &held(number.to_string())).await?;
    }
    let mut scanned: Vec<Id> =
        trial.pages(everything(), 50, ids.len() + 10).await?.into_iter().map(|(id, _)| id).collect();
    scanned.sort();
    let mut written = ids.to_vec();
    written.sort();
    ensure!(scanned == written, "written were {written:?}, the scan gave {scanned:?}");
    for (id, version) in ids.iter().zip(versions) {
        trial.remove(id, version).await?;
    }
    Ok(())
}
