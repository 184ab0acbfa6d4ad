//! Tests of what a response means for its key.

use http::Response;

use super::*;

fn action(response: &Response<&str>) -> Action {
    let head = ResponseHead {
        status: response.status(),
        headers: response.headers(),
        extensions: response.extensions(),
    };
    head.action(&Route::default(), Prior::Nothing, Some(response.body().as_bytes()))
}

fn problem(status: u16, kind: &str, name: &str) -> Action {
    let body = format!("{{\"type\":\"urn:onceward:problem:{name}\",\"status\":{status}}}");
    action(&Response::builder().status(status).header("content-type", kind).body(body.as_str()).unwrap())
}

#[test]
fn a_problem_of_another_onceward_says_more_than_its_status() {
    let kind = "application/problem+json";
    for (status, name, expected) in [
        (503, "overloaded", Action::Retry),
        (503, "store-unavailable", Action::Retry),
        (429, "quota-exceeded", Action::Retry),
        (409, "in-progress", Action::Retry),
        (409, "outcome-unknown", Action::Unknown),
        (500, "outcome-unknown", Action::Unknown),
        (422, "key-reused", Action::Replay),
        (504, "upstream-timeout", Action::Unknown),
    ] {
        assert_eq!(problem(status, kind, name), expected, "{status} {name}");
    }
    assert_eq!(problem(503, "Application/Problem+JSON; charset=utf-8", "overloaded"), Action::Retry);
    assert_eq!(problem(503, "application/json", "overloaded"), Action::Unknown, "only a problem counts");
    assert_eq!(problem(200, kind, "overloaded"), Action::Replay, "a success is not a problem");
}

#[test]
fn what_its_maker_says_counts_before_everything_else() {
    for (effect, expected) in [
        (ReportedEffect::None, Action::Retry),
        (ReportedEffect::Decided, Action::Replay),
        (ReportedEffect::Unknown, Action::Unknown),
    ] {
        for status in [200, 401, 500, 503] {
            let response = Response::builder().status(status).extension(effect).body("").unwrap();
            assert_eq!(action(&response), expected, "{status} {effect:?}");
        }
    }
    let forwarded = Response::builder().status(502).extension(Action::Retry).body("").unwrap();
    assert_eq!(action(&forwarded), Action::Retry);
}
