//! Tests of the explanations of receipts.

use serde_json::json;

use super::*;

fn receipt(more: &serde_json::Value) -> ReceiptShown {
    let mut shown = json!({"scope": "s", "operation": "POST /charges", "key": "k", "fence": 7});
    for (name, value) in more.as_object().unwrap() {
        shown[name] = value.clone();
    }
    serde_json::from_value(shown).unwrap()
}

#[test]
fn each_state_is_explained_with_what_to_do_next() {
    for (shown, says, unknown) in [
        (json!({"state": "held", "due_in_ms": 12_000}), "running. Its lease lasts for another 12 s", false),
        (json!({"state": "held", "due_in_ms": -180_000, "on_unknown": "hold"}), "ended 3 min ago", true),
        (json!({"state": "held", "due_in_ms": -5, "on_unknown": "retry"}), "retry runs it again", false),
        (json!({"state": "unknown", "reason": "lease_ended"}), "died or lost its lease", true),
        (json!({"state": "unknown", "reason": "reported"}), "no answer came back", true),
        (json!({"state": "unknown", "reason": "of a later version"}), "without an outcome", true),
        (json!({"state": "done", "verdict": "succeeded", "due_in_ms": 7_200_000}), "for another 2 h", false),
        (
            json!({"state": "done", "verdict": "failed"}),
            "failed, and the failure is final. Every retry gets the same answer forever",
            false,
        ),
        (json!({"state": "gone", "due_in_ms": 864_000_000}), "refused for another 10 days", false),
        (json!({"state": "waiting", "due_in_ms": 864_000_000}), "The next retry runs", false),
        (
            json!({"state": "waiting", "due_in_ms": -1, "input_bytes": 2, "tries": 0}),
            "begin now. It has not",
            false,
        ),
        (
            json!({"state": "waiting", "due_in_ms": 5_000, "input_bytes": 2, "tries": 2, "last_error": "down."}),
            "may begin in 5 s. It was tried 2 times; the last error: down.",
            false,
        ),
        (
            json!({"state": "dead", "input_bytes": 2, "tries": 5, "prior": "unknown"}),
            "may have taken effect",
            true,
        ),
        (json!({"state": "done", "closed": "undone", "due_in_ms": 5_000}), "undone before it began", false),
    ] {
        let receipt = receipt(&shown);
        assert!(meaning(&receipt).contains(says), "{says}: {}", meaning(&receipt));
        assert_eq!(is_outcome_unknown(&receipt), unknown, "{shown}");
        assert_eq!(next(&receipt) == "Nothing to do.", !unknown, "{shown}");
    }
    let dead = receipt(&json!({"state": "dead", "input_bytes": 2, "tries": 5, "last_error": "down"}));
    assert!(meaning(&dead).contains("tried 5 times; the last error: down."), "{}", meaning(&dead));
    assert!(!is_outcome_unknown(&dead) && can_be_settled(&dead));
    assert!(next(&dead).contains("dead retry s 'POST /charges' k"), "{}", next(&dead));
    let damaged = receipt(&json!({"state": "done", "unreadable": "checksum"}));
    assert!(meaning(&damaged).contains("checksum") && next(&damaged).contains("copy"));
}

#[test]
fn the_suggested_command_fits_the_kind_of_operation() {
    let unknown = json!({"state": "unknown"});
    assert!(next(&receipt(&unknown)).contains("--fence 7 --done --status 201"));
    let mut own = receipt(&unknown);
    own.operation = "ship order".into();
    assert!(next(&own).contains("--done --verdict succeeded"));
}

#[test]
fn a_shell_reads_quoted_words_unchanged() {
    for (word, quoted_word) in
        [("k-1", "k-1"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
    {
        assert_eq!(shell_quoted(word), quoted_word);
    }
}

#[test]
fn control_characters_are_replaced() {
    assert_eq!(without_control_characters("a\x1b[2Jb\nc\u{9b}d"), "a�[2Jb\nc�d");
}
