//! Undos with `Onceward-Closes` through the gateway.

use super::stage::{Home, Reply, Service};
use crate::process::{Answer, onceward};

const CONFIG: &str = "[[route]]\npath = \"/refunds\"\ncloses = [\"POST /charges\"]\n";

#[test]
fn an_undo_closes_what_never_came_and_tells_the_service_what_was_found() {
    let home = Home::new();
    home.write_config(CONFIG);
    let service = Service::start(|request| match request.body.as_slice() {
        br#"{"lost":1}"# => Reply::Raw(Vec::new()),
        _ => Reply::created("{}"),
    });
    let gateway = home.start(&service.url());
    let me = ("Authorization", "Bearer me");
    let charge = |key: &str, body: &str| gateway.post("/charges", &[me, ("Idempotency-Key", key)], body);
    let undo = |key: &str, closes: &str, more: &[(&str, &str)]| -> Answer {
        let closes = format!("\"{closes}\"; operation=\"POST /charges\"");
        let mut fields = vec![me, ("Idempotency-Key", key), ("Onceward-Closes", &closes)];
        fields.extend_from_slice(more);
        gateway.post("/refunds", &fields, "{}")
    };
    assert_eq!(undo("u1", "never", &[("Onceward-Found", "done")]).status, 201);
    assert_eq!(charge("never", "{}").problem(), (409, "closed".into()));
    assert_eq!(undo("u2", "never", &[]).status, 201);
    assert_eq!(charge("did", "{}").status, 201);
    assert_eq!(undo("u3", "did", &[]).status, 201);
    assert_eq!(charge("lost", r#"{"lost":1}"#).status, 504);
    assert_eq!(undo("u4", "lost", &[]).problem(), (409, "outcome-unknown".into()));
    let plain = gateway.post("/refunds", &[me, ("Idempotency-Key", "u5"), ("Onceward-Found", "done")], "{}");
    assert_eq!(plain.status, 201);
    let received = service.received();
    let found: Vec<_> = received
        .iter()
        .filter(|got| got.line.contains("/refunds"))
        .map(|got| got.field("onceward-found").map(str::to_owned))
        .collect();
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(found, [said("absent"), said("closed"), said("done"), None], "and never what a client says");
    assert_eq!(received[0].field("onceward-closes"), Some("\"never\"; operation=\"POST /charges\""));
    assert_eq!(gateway.get("/.well-known/idempotency").json()["routes"][0]["closes"][0], "POST /charges");
}

#[test]
fn the_setting_is_shown_and_checked() {
    let home = Home::new();
    home.write_config(CONFIG);
    let check = || onceward(&["config", "check", home.config().to_str().unwrap()]).output().unwrap();
    let shown = String::from_utf8(check().stdout).unwrap();
    assert!(shown.contains("closes               POST /charges"), "{shown}");
    for (wrong, why) in [
        ("closes = [\"\"]", "is no operation"),
        ("closes = [\"POST /a\"]\nscope = \"shared\"", "share one scope"),
    ] {
        home.write_config(&format!("[[route]]\npath = \"/refunds\"\n{wrong}\n"));
        let output = check();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said.contains(why) && said.contains("line 1"), "{said}");
    }
}
