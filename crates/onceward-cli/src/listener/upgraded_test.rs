//! Tests of a connection after its upgrade.

use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use super::super::{ConnectionTimeouts, Networks, Slot, SlotLimits};
use super::*;

async fn upgraded() -> (Slot, UpgradedConnection) {
    let limit = Duration::from_secs(10);
    let timeouts = ConnectionTimeouts { head: limit, idle: limit, write: limit };
    let exempt = Networks::default();
    let slots = ConnectionSlots::new(SlotLimits { connections_max: 1, per_address_max: 1, exempt, timeouts });
    let slot = slots.take("192.0.2.1".parse().unwrap()).await.unwrap();
    let upgraded = UpgradingConnection::new(slots, slot.watch().clone()).agreed();
    (slot, upgraded)
}

/// Both ends, and their other ends.
fn streams() -> [(DuplexStream, DuplexStream); 2] {
    [duplex(64), duplex(64)]
}

#[tokio::test(start_paused = true)]
async fn it_counts_as_in_use_until_both_sides_have_ended() {
    let (slot, upgraded) = upgraded().await;
    let [(client, mut client_end), (service, mut service_end)] = streams();
    let watch = slot.watch().clone();
    assert_eq!(watch.idle(), None);
    let joined = tokio::spawn(upgraded.join(client, service, Duration::from_secs(60)));
    client_end.write_all(b"there").await.unwrap();
    service_end.write_all(b"back").await.unwrap();
    let mut read = [0; 5];
    service_end.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"there");
    client_end.read_exact(&mut read[..4]).await.unwrap();
    assert_eq!(&read[..4], b"back");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(watch.idle(), None, "silence is what these connections are for");
    drop(client_end);
    assert_eq!(service_end.read(&mut read).await.unwrap(), 0);
    drop(service_end);
    joined.await.unwrap();
    assert!(watch.idle().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_its_side_open_holds_it_for_a_bounded_time() {
    let (slot, upgraded) = upgraded().await;
    let [(client, client_end), (service, service_end)] = streams();
    let began = tokio::time::Instant::now();
    drop(client_end);
    upgraded.join(client, service, Duration::from_secs(60)).await;
    assert_eq!(began.elapsed().as_secs(), 60);
    assert!(slot.watch().idle().is_some());
    drop(service_end);
}
