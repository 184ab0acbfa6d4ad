//! Fields that are new in every sending: timestamps, nonces, request ids.

use std::time::SystemTime;

use super::message::Request;
use crate::random::Random;

/// Puts these fields into a request, with what they stand for at this moment.
pub(super) fn fill(request: &mut Request, fields: &[(String, String)], random: &mut Random, count: &mut u64) {
    for (name, value) in fields {
        *count += 1;
        let value = filled(value, random, *count);
        request.fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        request.fields.push((name.clone(), value.into_bytes()));
    }
}

fn filled(template: &str, random: &mut Random, count: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut hex = |digits: usize| -> String {
        (0..digits)
            .map(|_| char::from_digit(u32::try_from(random.below(16)).unwrap_or_default(), 16))
            .map(|digit| digit.unwrap_or('0'))
            .collect()
    };
    let uuid = format!("{}-{}-4{}-8{}-{}", hex(8), hex(4), hex(3), hex(3), hex(12));
    template
        .replace("{uuid}", &uuid)
        .replace("{unix_ms}", &now.as_millis().to_string())
        .replace("{unix}", &now.as_secs().to_string())
        .replace("{count}", &count.to_string())
}

#[cfg(test)]
#[path = "fresh_test.rs"]
mod tests;
