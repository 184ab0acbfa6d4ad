//! The table of the contract, row by row.

use super::*;

fn of(actions: &Actions, code: u16) -> Action {
    actions.of(StatusCode::from_u16(code).unwrap())
}

#[test]
fn the_default_never_frees_a_key_whose_effect_may_have_happened() {
    let actions = Actions::default();
    for code in 200..600 {
        let expected = match code {
            401 | 403 | 407 | 412 | 421 | 423 | 425 | 426 | 428 | 429 => Action::Retry,
            408 | 502 | 503 | 504 | 520..=599 => Action::Unknown,
            _ => Action::Replay,
        };
        assert_eq!(of(&actions, code), expected, "{code}");
    }
}

#[test]
fn a_conflict_that_says_when_to_come_back_was_refused_before_execution() {
    let mut actions = Actions::default();
    let conflict =
        |actions: &Actions, retry_after| actions.of_run(StatusCode::CONFLICT, retry_after, Prior::Nothing);
    assert_eq!((conflict(&actions, false), conflict(&actions, true)), (Action::Replay, Action::Retry));
    actions.on_class(StatusClass::ClientError, Action::Unknown);
    assert_eq!((conflict(&actions, false), conflict(&actions, true)), (Action::Unknown, Action::Retry));
    actions.on_status(StatusCode::CONFLICT, Action::Replay);
    assert_eq!(conflict(&actions, true), Action::Replay, "a status that is set by itself is final");
}

#[test]
fn after_an_unknown_outcome_a_refusal_may_be_about_the_earlier_copy() {
    let actions = Actions::default();
    for prior in [Prior::Unknown, Prior::Settled] {
        for code in 200..600 {
            let status = StatusCode::from_u16(code).unwrap();
            let expected =
                if matches!(code, 409 | 412 | 423 | 425) { Action::Unknown } else { of(&actions, code) };
            for retry_after in [false, true] {
                assert_eq!(actions.of_run(status, retry_after, prior), expected, "{code} {prior:?}");
            }
        }
    }
}

#[test]
fn a_class_covers_only_what_the_table_does_not_name() {
    let mut actions = Actions::default();
    actions.on_class(StatusClass::ServerError, Action::Retry);
    for code in 500..600 {
        let expected = if matches!(code, 502..=504 | 520..) { Action::Unknown } else { Action::Retry };
        assert_eq!(of(&actions, code), expected, "{code}");
    }
    actions.on_class(StatusClass::ClientError, Action::Retry);
    assert_eq!(of(&actions, 408), Action::Unknown);
    actions.on_status(StatusCode::SERVICE_UNAVAILABLE, Action::Retry);
    assert_eq!((of(&actions, 503), of(&actions, 502)), (Action::Retry, Action::Unknown));
}

#[test]
fn every_status_that_does_not_go_by_its_class_is_listed() {
    let mut actions = Actions::default();
    actions.on_status(StatusCode::IM_A_TEAPOT, Action::Retry);
    let listed: Vec<_> = actions.statuses().iter().map(|(status, _)| status.as_u16()).collect();
    let all: Vec<_> = (200..520)
        .filter(|code| *code == 418 || named(StatusCode::from_u16(*code).unwrap()).is_some())
        .collect();
    assert_eq!(listed, all);
    assert!(LOST_RANGE.into_iter().all(|code| named(StatusCode::from_u16(code).unwrap()).is_some()));
}
