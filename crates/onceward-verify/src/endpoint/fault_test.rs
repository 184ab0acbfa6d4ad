use super::{Cause, FaultKind, attribute};
use crate::endpoint::report::{Finding, ScenarioVerdict};

fn found(scenario: &'static str, fault: FaultKind) -> Finding {
    Finding {
        scenario,
        promise: "",
        verdict: ScenarioVerdict::Violated,
        fault: Some(fault),
        same_cause_as: None,
        why: String::new(),
        notes: Vec::new(),
        requests: 0,
        took_ms: 0,
        reproduce: String::new(),
        timeline: None,
    }
}

fn same(findings: &[Finding]) -> Vec<Option<&str>> {
    findings.iter().map(|finding| finding.same_cause_as).collect()
}

#[test]
fn a_lost_field_is_one_finding() {
    let lost = || vec![Cause::Replay("field `location` was lost".into())];
    let mut findings = [
        found("simultaneous-duplicates", FaultKind::InexactReplay),
        found("retry-after-success", FaultKind::InexactReplay),
        found("late-retry", FaultKind::InexactReplay),
        found("crash", FaultKind::Wedged),
    ];
    attribute(&mut findings, &[lost(), lost(), lost(), vec![]]);
    let plain = Some("retry-after-success");
    assert_eq!(same(&findings), [plain, None, plain, None]);
}

#[test]
fn another_field_is_another_finding() {
    let lost = |name: &str| vec![Cause::Replay(name.into())];
    let mut findings = [
        found("retry-after-success", FaultKind::InexactReplay),
        found("late-retry", FaultKind::InexactReplay),
    ];
    attribute(&mut findings, &[lost("etag"), lost("location")]);
    assert_eq!(same(&findings), [None, None]);
}

#[test]
fn where_nothing_is_deduplicated_every_second_effect_has_one_cause() {
    let mut findings = [
        found("simultaneous-duplicates", FaultKind::DoubleEffect),
        found("crash", FaultKind::DoubleEffect),
        found("redelivered-webhook", FaultKind::DoubleEffect),
        found("other-body-during", FaultKind::WrongAnswer),
    ];
    let none = || vec![Cause::NotDeduplicated];
    attribute(&mut findings, &[vec![Cause::Race, Cause::NotDeduplicated], none(), vec![], vec![]]);
    let simultaneous = Some("simultaneous-duplicates");
    assert_eq!(same(&findings), [None, simultaneous, None, None], "events are known by something else");
    let mut findings = findings.map(|finding| Finding { same_cause_as: None, ..finding });
    attribute(&mut findings, &[vec![Cause::Race], vec![], vec![], vec![]]);
    assert_eq!(same(&findings), [None, None, None, None], "a crash has its own cause");
}
