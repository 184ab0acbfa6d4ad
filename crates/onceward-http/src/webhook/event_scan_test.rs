use super::*;

fn event(key: &str, object: Option<&str>, arrived_us: u64) -> QueuedEvent {
    let id = Id::new("shared", "POST /hooks", key).unwrap();
    let object = object.map_or_else(|| Object::Alone(id.clone()), |name| Object::Named(name.into()));
    QueuedEvent { id, object, arrived_us }
}

fn begun(queues: &mut ObjectQueues) -> Vec<String> {
    std::iter::from_fn(|| queues.begin(Duration::ZERO)).map(|(id, _)| id.key().to_owned()).collect()
}

#[test]
fn an_event_begins_only_after_a_scan_that_began_after_it_was_stored() {
    let (mut scan, mut queues) = (EventScan::new(true), ObjectQueues::default());
    let (a1, a2, alone) = (event("a1", Some("a"), 1), event("a2", Some("a"), 2), event("x", None, 3));
    // The scan has passed the place of a1, which another process stores meanwhile, before a2.
    scan.take(vec![a2.clone(), alone], &mut queues);
    assert_eq!(begun(&mut queues), ["x"]);
    scan.take(vec![a1, a2.clone(), event("a3", Some("a"), 4)], &mut queues);
    assert_eq!(begun(&mut queues), ["a1"]);
    queues.over(&Object::Named("a".into()));
    assert_eq!(begun(&mut queues), ["a2"]);
    queues.over(&Object::Named("a".into()));
    assert_eq!(begun(&mut queues), Vec::<String>::new(), "a3 has to wait for the next scan");
    scan.take(vec![event("a3", Some("a"), 4)], &mut queues);
    assert_eq!(begun(&mut queues), ["a3"]);
}

#[test]
fn an_announced_event_was_stored_before_the_next_scan() {
    let (mut scan, mut queues) = (EventScan::new(true), ObjectQueues::default());
    let (a1, a2) = (event("a1", Some("a"), 1), event("a2", Some("a"), 2));
    scan.announced(a2.clone(), &mut queues);
    assert_eq!(begun(&mut queues), Vec::<String>::new());
    scan.take(vec![a1, a2], &mut queues);
    assert_eq!(begun(&mut queues), ["a1"]);
}

#[test]
fn a_process_that_has_its_store_alone_waits_for_nothing() {
    let (mut scan, mut queues) = (EventScan::new(false), ObjectQueues::default());
    scan.take(vec![event("a1", Some("a"), 1)], &mut queues);
    scan.announced(event("b1", Some("b"), 2), &mut queues);
    assert_eq!(begun(&mut queues), ["a1", "b1"]);
}
