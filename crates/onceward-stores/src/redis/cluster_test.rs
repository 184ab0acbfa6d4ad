use super::*;

/// As the cluster specification has it, and as `CLUSTER KEYSLOT` answers.
#[test]
fn slots_are_those_of_the_specification() {
    assert_eq!(crc16(b"123456789"), 0x31c3);
    assert_eq!(slot(0), 13_907);
    assert_eq!(slot(255), 14_163);
}

#[test]
fn an_answer_to_cluster_slots_is_read() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let node = |port| Value::Array(vec![text("127.0.0.1"), Value::Int(port), text("id")]);
    let range = Value::Array(vec![Value::Int(0), Value::Int(5460), node(7000), node(7003)]);
    let strange = Value::Array(vec![Value::Int(0), Value::Nil]);
    let expected = SlotRange { first: 0, last: 5460, host: "127.0.0.1".to_owned(), port: 7000 };
    assert_eq!(ranges(&Value::Array(vec![strange, range])), [expected]);
    assert!(ranges(&Value::Nil).is_empty());
}
