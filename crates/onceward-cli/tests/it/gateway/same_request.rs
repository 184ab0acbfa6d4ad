//! New keys for the same request, through the gateway: counted or refused, as its file says.

use super::stage::{Gateway, Home, Service};
use crate::process::{Answer, eventually, onceward, send};

fn stage(on_same_request: &str) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(&format!(
        "[[route]]\npath = \"/charges\"\nsame_request_window = \"30s\"\n{on_same_request}\n"
    ));
    let gateway = home.start(&service.url());
    (home, service, gateway)
}

fn count(gateway: &Gateway, name: &str) -> String {
    gateway.metric(&format!("onceward_http_same_requests_{name}_total")).to_string()
}

fn charge(gateway: &Gateway, key: &str, who: &str, body: &str) -> Answer {
    let fields = [("Idempotency-Key", key), ("Authorization", who), ("Content-Type", "application/json")];
    send(gateway.address, "POST", "/charges", &fields, body)
}

#[test]
fn another_key_for_the_same_request_is_refused_where_the_route_says_so() {
    let (_home, service, gateway) = stage("on_same_request = \"refuse\"");
    assert_eq!(charge(&gateway, "one", "Bearer a", "{\"amount\": 1}").status, 201);
    let refused = charge(&gateway, "two", "Bearer a", "{ \"amount\":1 }");
    assert_eq!(refused.problem(), (409, "same-request-other-key".into()));
    assert_eq!(service.effects(), 1);
    let replayed = charge(&gateway, "one", "Bearer a", "{\"amount\": 1}");
    assert_eq!((replayed.status, replayed.field("idempotent-replayed")), (201, Some("true")));
    assert_eq!(charge(&gateway, "two", "Bearer a", "{\"amount\": 2}").status, 201, "another request");
    assert_eq!(count(&gateway, "other_key"), "1");
}

#[test]
fn another_key_or_another_caller_is_counted_and_runs() {
    let (_home, service, gateway) = stage("");
    for (key, who) in [("one", "Bearer a"), ("two", "Bearer a"), ("one", "Bearer b")] {
        assert_eq!(charge(&gateway, key, who, "{}").status, 201, "{key} {who}");
    }
    assert_eq!(service.effects(), 3, "counting refuses nothing");
    for name in ["other_key", "other_scope"] {
        eventually(name, || (count(&gateway, name) == "1").then_some(()));
    }
}

#[test]
fn a_rule_without_a_window_is_an_error_that_names_the_setting() {
    let home = Home::new();
    for (setting, says) in [
        ("on_same_request = \"refuse\"", "same_request_window"),
        ("same_request_window = \"0s\"", "same_request_window"),
    ] {
        home.write_config(&format!("[[route]]\npath = \"/charges\"\n{setting}\n"));
        let checked = onceward(&["config", "check", home.config().to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.code(), Some(2), "{setting}: {said}");
        assert!(said.contains(says), "{setting}: {said}");
    }
}
