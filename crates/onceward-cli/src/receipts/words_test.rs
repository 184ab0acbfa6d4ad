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
fn each_state_says_what_it_means_and_whether_there_is_something_to_do() {
    for (shown, says, in_doubt) in [
        (json!({"state": "held", "due_in_ms": 12_000}), "running. Its lease holds for another 12 s", false),
        (json!({"state": "held", "due_in_ms": -180_000, "on_unknown": "hold"}), "silent 3 min ago", true),
        (json!({"state": "held", "due_in_ms": -5, "on_unknown": "retry"}), "takes it over by itself", false),
        (json!({"state": "unknown", "doubt": "lease_ended"}), "died or lost touch", true),
        (json!({"state": "unknown", "doubt": "reported"}), "no answer came back", true),
        (json!({"state": "unknown", "doubt": "of a later version"}), "without an answer", true),
        (json!({"state": "done", "verdict": "succeeded", "due_in_ms": 7_200_000}), "for another 2 h", false),
        (
            json!({"state": "done", "verdict": "failed"}),
            "failed, and that is the answer. Every retry gets the same answer forever",
            false,
        ),
        (json!({"state": "gone", "due_in_ms": 864_000_000}), "refused for another 10 days", false),
        (json!({"state": "waiting", "due_in_ms": 864_000_000}), "The next retry runs", false),
        (
            json!({"state": "waiting", "due_in_ms": -1, "input_bytes": 2, "tries": 0}),
            "begin now. It was not",
            false,
        ),
        (
            json!({"state": "waiting", "due_in_ms": 5_000, "input_bytes": 2, "tries": 2, "last_error": "down."}),
            "may begin in 5 s. It was tried 2 times; the last error: down.",
            false,
        ),
        (
            json!({"state": "dead", "input_bytes": 2, "tries": 5, "prior": "in_doubt"}),
            "may have taken effect",
            true,
        ),
        (json!({"state": "done", "closed": "undone", "due_in_ms": 5_000}), "undone before it began", false),
    ] {
        let receipt = receipt(&shown);
        assert!(meaning(&receipt).contains(says), "{says}: {}", meaning(&receipt));
        assert_eq!(is_in_doubt(&receipt), in_doubt, "{shown}");
        assert_eq!(next(&receipt) == "Nothing to do.", !in_doubt, "{shown}");
    }
    let dead = receipt(&json!({"state": "dead", "input_bytes": 2, "tries": 5, "last_error": "down"}));
    assert!(meaning(&dead).contains("tried 5 times; the last error: down."), "{}", meaning(&dead));
    assert!(!is_in_doubt(&dead) && can_be_settled(&dead));
    assert!(next(&dead).contains("dead retry s 'POST /charges' k"), "{}", next(&dead));
    let damaged = receipt(&json!({"state": "done", "unreadable": "checksum"}));
    assert!(meaning(&damaged).contains("checksum") && next(&damaged).contains("copy"));
}

#[test]
fn what_to_type_fits_where_the_receipt_came_from() {
    let unknown = json!({"state": "unknown"});
    assert!(next(&receipt(&unknown)).contains("--fence 7 --done --status 201"));
    let mut own = receipt(&unknown);
    own.operation = "ship order".into();
    assert!(next(&own).contains("--done --verdict succeeded"));
}

#[test]
fn words_come_back_from_a_shell_as_they_were() {
    for (word, quoted_word) in
        [("k-1", "k-1"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$x", "'$x'")]
    {
        assert_eq!(quoted(word), quoted_word);
    }
}

#[test]
fn nothing_of_somebody_else_drives_the_terminal() {
    assert_eq!(harmless("a\x1b[2Jb\nc\u{9b}d"), "a�[2Jb\nc�d");
}
