use super::*;

#[test]
fn replicas_that_are_not_waited_for_can_lose_receipts() {
    assert!(failover_loss("on", "", "0").is_none(), "there is nothing to fail over to");
    assert!(failover_loss("on", "one", "1").is_none());
    assert!(failover_loss("on", "", "2").unwrap().contains("synchronous_standby_names is empty"));
    assert!(failover_loss("local", "one", "1").unwrap().contains("local"));
}
