use std::time::Duration;

use super::*;

fn slots(connections_max: usize, per_address_max: usize) -> Arc<ConnectionSlots> {
    let timeout = Duration::from_secs(10);
    let timeouts = ConnectionTimeouts { head: timeout, idle: timeout, write: timeout };
    let exempt = "10.0.0.0/8".parse().unwrap();
    ConnectionSlots::new(SlotLimits { connections_max, per_address_max, exempt, timeouts })
}

fn take(slots: &Arc<ConnectionSlots>, address: &str) -> Taken {
    slots.try_take(address.parse().unwrap())
}

fn busy(slots: &Arc<ConnectionSlots>, address: &str) -> (Slot, crate::listener::RequestInProgress) {
    let Taken::Slot(slot) = take(slots, address) else { panic!("there is no slot") };
    let request = slot.watch().begin_request(false);
    (slot, request)
}

#[test]
fn an_address_has_its_share_and_no_more() {
    let slots = slots(10, 2);
    let one = busy(&slots, "192.0.2.1");
    let _two = busy(&slots, "192.0.2.1");
    assert!(matches!(take(&slots, "192.0.2.1"), Taken::ShareUsed));
    assert!(matches!(take(&slots, "192.0.2.2"), Taken::Slot(_)));
    drop(one);
    assert!(matches!(take(&slots, "192.0.2.1"), Taken::Slot(_)));
    let _balancer = [busy(&slots, "10.1.1.1"), busy(&slots, "10.1.1.1"), busy(&slots, "10.1.1.1")];
}

#[test]
fn silent_connections_give_way_first_then_idle_ones() {
    let slots = slots(2, 2);
    let (idle, request) = busy(&slots, "192.0.2.1");
    drop(request);
    let Taken::Slot(silent) = take(&slots, "192.0.2.1") else { panic!() };
    let _first = busy(&slots, "192.0.2.2");
    assert_eq!(slots.lock().list.len(), 2);
    assert!(slots.lock().list.contains_key(&idle.number), "it has had a request");
    assert!(!slots.lock().list.contains_key(&silent.number));
    let _second = busy(&slots, "192.0.2.2");
    assert!(!slots.lock().list.contains_key(&idle.number));
    assert!(matches!(take(&slots, "192.0.2.3"), Taken::Full), "what is in use stays");
    drop((silent, idle));
    assert_eq!(slots.lock().list.len(), 2, "a slot is freed once");
}

#[tokio::test]
async fn a_full_listener_waits_until_a_connection_ends() {
    let slots = slots(1, 1);
    let first = busy(&slots, "192.0.2.1");
    let second = slots.take("192.0.2.2".parse().unwrap());
    let mut second = std::pin::pin!(second);
    let waited = tokio::time::timeout(Duration::from_millis(20), second.as_mut()).await;
    assert!(waited.is_err());
    drop(first);
    assert!(second.await.is_some());
}
