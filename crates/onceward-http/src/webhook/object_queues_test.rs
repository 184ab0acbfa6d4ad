use super::*;

fn event(key: &str, object: Option<&str>, arrived_us: u64) -> QueuedEvent {
    let id = Id::new("shared", "POST /hooks", key).unwrap();
    let object = object.map_or_else(|| Object::Alone(id.clone()), |name| Object::Named(name.into()));
    QueuedEvent { id, object, arrived_us }
}

fn begin(queues: &mut ObjectQueues, at: u64) -> Option<(String, Object)> {
    queues.begin(Duration::from_secs(at)).map(|(id, object)| (id.key().to_owned(), object))
}

#[test]
fn one_event_of_an_object_runs_at_a_time_and_the_oldest_first() {
    let mut queues = ObjectQueues::default();
    for added in
        [event("a2", Some("a"), 2), event("a1", Some("a"), 1), event("b1", Some("b"), 3), event("x", None, 9)]
    {
        queues.add(added.clone());
        queues.add(added);
    }
    assert_eq!(queues.len(), 4, "what is known is not added twice");
    let begun: Vec<_> = std::iter::from_fn(|| begin(&mut queues, 0)).map(|(key, _)| key).collect();
    assert_eq!(begun, ["a1", "b1", "x"]);
    // One that arrived earlier and was seen later does not run beside the running one.
    queues.add(event("a0", Some("a"), 0));
    assert_eq!(begin(&mut queues, 0), None);
    let a = Object::Named("a".into());
    queues.over(&a);
    assert_eq!(begin(&mut queues, 0).unwrap().0, "a0", "the one that ran is over, not this");
    queues.over(&a);
    assert_eq!(begin(&mut queues, 0).unwrap().0, "a2");
    queues.over(&a);
    queues.over(&Object::Named("b".into()));
    assert_eq!((queues.len(), queues.next_due()), (1, None));
}

#[test]
fn a_failed_event_holds_up_its_object_and_no_other() {
    let mut queues = ObjectQueues::default();
    queues.add(event("a1", Some("a"), 1));
    queues.add(event("a2", Some("a"), 2));
    let (key, a) = begin(&mut queues, 0).unwrap();
    assert_eq!(key, "a1");
    queues.again(&a, Duration::from_secs(5));
    queues.add(event("a3", Some("a"), 3));
    queues.add(event("b1", Some("b"), 4));
    assert_eq!(begin(&mut queues, 4).unwrap().0, "b1");
    assert_eq!(begin(&mut queues, 4), None);
    assert_eq!(queues.next_due(), Some(Duration::from_secs(5)));
    let rest: Vec<_> = std::iter::from_fn(|| {
        let (key, object) = begin(&mut queues, 5)?;
        queues.over(&object);
        Some(key)
    })
    .collect();
    assert_eq!(rest, ["a1", "a2", "a3"]);
}
