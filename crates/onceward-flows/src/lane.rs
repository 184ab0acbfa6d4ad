//! Lanes: the unit of order in an outbox. Every ordering key belongs to one lane, and of all transactions that write
//! to a lane, one is between its insert and its commit at a time.

use crate::message::Message;

/// The number of lanes. Part of what is stored: it never changes.
pub(crate) const LANES: u32 = 1024;

/// The lane of a message: that of its ordering key, or of its own id if it has none.
pub(crate) fn lane_of(message: &Message) -> u32 {
    lane(message.ordering_key().unwrap_or(message.id()))
}

/// FNV-1a with its upper half mixed in. All writers of a key must agree on it, also those of other versions, so it
/// never changes.
fn lane(key: &str) -> u32 {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    u32::try_from((hash ^ (hash >> 32)) % u64::from(LANES)).expect("there are few lanes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: no line here is ever edited.
    #[test]
    fn lanes_never_change() {
        let lanes = ["a", "customer-7", "Müller & Söhne", "00000000-0000-4000-8000-000000000000"].map(lane);
        assert_eq!(lanes, [192, 346, 989, 937]);
    }

    #[test]
    fn keys_are_spread_over_all_lanes() {
        let mut counts = vec![0_u32; LANES as usize];
        for number in 0..102_400 {
            counts[lane(&format!("customer-{number}")) as usize] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 50 && *most < 160, "100 are expected in each lane; {least} to {most}");
    }

    #[test]
    fn a_message_without_ordering_key_has_the_lane_of_its_id() {
        let message = Message::new("t", "").with_id("customer-7");
        assert_eq!(lane_of(&message), lane("customer-7"));
        assert_eq!(lane_of(&message.with_ordering_key("a")), lane("a"));
    }
}
