use super::Table;

fn report(seed: u64, findings: &str) -> String {
    let started = 1_763_484_660 + 3_600 * seed;
    format!(
        r#"{{"url":"http://app/charges","method":"POST","version":"0.1.0","seed":{seed},"started_unix_s":{started},"requests":10,"took_ms":1500,"findings":[{findings}]}}"#
    )
}

fn finding(scenario: &str, verdict: &str, same: &str) -> String {
    let same = if same.is_empty() { "null".to_owned() } else { format!("{same:?}") };
    let fault = if verdict == "violated" { r#""double-effect""# } else { "null" };
    format!(
        r#"{{"scenario":"{scenario}","verdict":"{verdict}","fault":{fault},"same_cause_as":{same},"why":"because | of"}}"#
    )
}

#[test]
fn seeds_are_counted_and_columns_are_merged_by_name() {
    let mut table = Table::default();
    let first = [finding("crash", "violated", ""), finding("simultaneous-duplicates", "holds", "")].join(",");
    let second =
        [finding("crash", "holds", ""), finding("simultaneous-duplicates", "violated", "crash")].join(",");
    table.add_json("one", &report(0, &first)).unwrap();
    table.add_json("one", &report(1, &second)).unwrap();
    table.add_json("", &report(0, &finding("expiry", "not-applicable", ""))).unwrap();
    let text = table.markdown();
    assert!(text.contains("| scenario | one | POST http://app/charges |"), "{text}");
    assert!(
        text.contains("| crash | **V** 1/2 |  |") && text.contains("| simultaneous-duplicates | v 1/2 |"),
        "{text}"
    );
    assert!(
        text.find("| simultaneous").unwrap() < text.find("| crash").unwrap(),
        "the order of the scenarios: {text}"
    );
    assert!(!text.contains("expiry"), "applies nowhere: {text}");
    assert!(text.contains("* crash (double effect): because \\| of"), "{text}");
    assert!(text.contains("seeds 0, 1") && text.contains("Nothing was violated."), "{text}");
    let summary = "1 violated, 1 violated with the same cause (each scenario by its worst seed).";
    assert!(text.contains(summary) && text.contains("\n1 not applicable.\n"), "{text}");
    assert!(text.contains("seeds 0, 1, 2025-11-18 16:51 UTC, onceward verify 0.1.0"), "the first: {text}");
    assert!(table.add_json("", "[{}]").is_err());
}

/// Reports of a description are a member of an object, and older ones have no date.
#[test]
fn reports_of_a_description_and_older_ones_are_read() {
    let new = report(0, &finding("crash", "holds", ""));
    let old = new.replace(r#""started_unix_s":1763484660,"#, "");
    assert_ne!(old, new);
    let mut table = Table::default();
    table.add_json("new", &format!(r#"{{"without_key":["POST /refunds"],"reports":[{new}]}}"#)).unwrap();
    table.add_json("old", &old).unwrap();
    let text = table.markdown();
    assert!(text.contains("| crash | H | H |") && text.contains("seed 0, onceward verify"), "{text}");
}
