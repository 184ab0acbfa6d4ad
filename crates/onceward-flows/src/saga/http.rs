//! What an HTTP answer of a participant means for a step: refused, failed or unknown. The rules are those by which the
//! layer and the gateway keep outcomes (`docs/protocol.md`).

use http::{HeaderMap, StatusCode, header};
use onceward::Prior;

use super::step::{Step, StepOutput, StepResult, StepStop};

const PROBLEM: &str = "urn:onceward:problem:";

/// Returns the meaning of a participant's response. A 2xx or 3xx gives the body as the result of the step.
///
/// | answer | the step |
/// |---|---|
/// | 2xx, 3xx | succeeds |
/// | 401, 403, 407, 412, 421, 423, 425, 426, 428, 429; 409 with `Retry-After` | is tried again: it was refused before it ran |
/// | 409, 412, 423, 425 if an earlier try may have taken effect | is unknown |
/// | other 4xx | is refused |
/// | 408, 502, 503, 504, 520 to 599 | is unknown: a hop may have lost the answer |
/// | other 5xx | failed: it began |
/// | with `Idempotent-Replayed: true`, or a 5xx with `Idempotency-Expires`: 4xx | is refused: it is recorded, and every try gets it |
/// | the same: 5xx, 408 | failed |
/// | problem `response-not-stored` | as its `original_status` says; without one it is unknown |
/// | problems of Onceward: `in-progress`, `outcome-unknown`, `dead`, `key-expired` | is unknown |
/// | `overloaded`, `store-unavailable`, `quota-exceeded`, `upstream-unreachable` | is tried again |
pub fn step_result_of(step: &Step, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> StepResult {
    ending(step.lease().prior(), status, headers, body)
}

fn ending(prior: Prior, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> StepResult {
    if let Some(result) = of_problem(headers, body) {
        return result;
    }
    let reason = || format!("the participant answered {status}");
    let code = status.as_u16();
    if is_recorded(status, headers) {
        return recorded(code, reason(), body);
    }
    match code {
        200..=399 => Ok(StepOutput::from(body.to_vec())),
        409 | 412 | 423 | 425 if prior != Prior::Nothing => {
            Err(StepStop::unknown(format!("{}, perhaps because of an earlier try", reason())))
        }
        401 | 403 | 407 | 412 | 421 | 423 | 425 | 426 | 428 | 429 => Err(StepStop::retry(reason())),
        409 if headers.contains_key(header::RETRY_AFTER) => Err(StepStop::retry(reason())),
        408 | 502 | 503 | 504 | 520..=599 => Err(StepStop::unknown(reason())),
        400..=499 => Err(StepStop::refused(reason())),
        500..=519 => Err(StepStop::failed(reason())),
        // An interim or unheard-of answer says nothing about the end.
        _ => Err(StepStop::unknown(reason())),
    }
}

/// Whether every further try under the key would get the same answer.
fn is_recorded(status: StatusCode, headers: &HeaderMap) -> bool {
    let replayed = headers.get("idempotent-replayed").is_some_and(|value| value == "true");
    replayed || (status.is_server_error() && headers.contains_key("idempotency-expires"))
}

/// What a recorded answer of this status means.
fn recorded(code: u16, reason: String, body: &[u8]) -> StepResult {
    match code {
        200..=399 => Ok(StepOutput::from(body.to_vec())),
        // The participant gave up waiting, perhaps after its work began.
        408 | 500..=599 => Err(StepStop::failed(reason)),
        400..=499 => Err(StepStop::refused(reason)),
        _ => Err(StepStop::unknown(reason)),
    }
}

fn of_problem(headers: &HeaderMap, body: &[u8]) -> Option<StepResult> {
    let media_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?.split(';').next()?.trim();
    if !media_type.eq_ignore_ascii_case("application/problem+json") {
        return None;
    }
    let problem: serde_json::Value = serde_json::from_slice(body).ok()?;
    let name = problem["type"].as_str()?.strip_prefix(PROBLEM)?;
    let reason = format!("the participant answered with the problem `{name}`");
    match name {
        "in-progress" | "outcome-unknown" | "dead" | "key-expired" | "key-reused" => {
            Some(Err(StepStop::unknown(reason)))
        }
        // It ran, and its answer is lost.
        "response-not-stored" => {
            let status = problem["original_status"].as_u64().and_then(|status| u16::try_from(status).ok());
            Some(recorded(status.unwrap_or_default(), reason, b""))
        }
        "overloaded" | "store-unavailable" | "quota-exceeded" | "upstream-unreachable" => {
            Some(Err(StepStop::retry(reason)))
        }
        "closed" => Some(Err(StepStop::refused(reason))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::super::step::StopKind::{self, Failed, Refused, Retry, Unknown};
    use super::*;

    fn kind(prior: Prior, status: u16, headers: &HeaderMap, body: &[u8]) -> Option<StopKind> {
        ending(prior, StatusCode::from_u16(status).unwrap(), headers, body).err().map(|stop| stop.kind)
    }

    #[test]
    fn every_class_of_status_has_its_ending() {
        let none = HeaderMap::new();
        let rows = [
            (&[200, 201, 202, 204, 207, 303][..], None),
            (&[400, 402, 404, 409, 410, 422], Some(Refused)),
            (&[401, 403, 407, 412, 421, 423, 425, 426, 428, 429], Some(Retry)),
            (&[408, 502, 503, 504, 520, 599], Some(Unknown)),
            (&[500, 501, 505, 511], Some(Failed)),
        ];
        for (statuses, expected) in rows {
            for &status in statuses {
                assert_eq!(kind(Prior::Nothing, status, &none, b""), expected, "{status}");
            }
        }
        for status in [409, 412, 423, 425] {
            assert_eq!(kind(Prior::Unknown, status, &none, b""), Some(Unknown), "{status}");
        }
        let later = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static("1"))]);
        assert_eq!(kind(Prior::Nothing, 409, &later, b""), Some(Retry));
    }

    #[test]
    fn a_problem_says_more_than_its_status() {
        let problem = HeaderValue::from_static("application/problem+json; charset=utf-8");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, problem)]);
        let rows = [
            ("in-progress", Some(Unknown)),
            ("outcome-unknown", Some(Unknown)),
            ("store-unavailable", Some(Retry)),
            ("closed", Some(Refused)),
            ("something-else", Some(Refused)),
        ];
        for (name, expected) in rows {
            let body = format!(r#"{{"type":"urn:onceward:problem:{name}"}}"#);
            assert_eq!(kind(Prior::Nothing, 422, &headers, body.as_bytes()), expected, "{name}");
        }
        assert_eq!(kind(Prior::Nothing, 422, &headers, b"not json"), Some(Refused));
    }

    #[test]
    fn an_answer_that_was_not_stored_is_what_its_status_was() {
        let problem = HeaderValue::from_static("application/problem+json");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, problem)]);
        for (original, expected) in [
            (r#","original_status":201"#, None),
            (r#","original_status":409"#, Some(Refused)),
            (r#","original_status":502"#, Some(Failed)),
            ("", Some(Unknown)),
            (r#","original_status":"x""#, Some(Unknown)),
        ] {
            let body = format!(r#"{{"type":"urn:onceward:problem:response-not-stored"{original}}}"#);
            assert_eq!(kind(Prior::Unknown, 409, &headers, body.as_bytes()), expected, "{original}");
        }
    }

    #[test]
    fn a_recorded_answer_is_final() {
        let replayed = HeaderMap::from_iter([(
            "idempotent-replayed".parse().unwrap(),
            HeaderValue::from_static("true"),
        )]);
        let kept =
            HeaderMap::from_iter([("idempotency-expires".parse().unwrap(), HeaderValue::from_static("1"))]);
        let rows = [
            (&replayed, 201, None),
            (&replayed, 429, Some(Refused)),
            (&replayed, 409, Some(Refused)),
            (&replayed, 408, Some(Failed)),
            (&replayed, 502, Some(Failed)),
            (&replayed, 504, Some(Failed)),
            (&kept, 503, Some(Failed)),
            (&kept, 429, Some(Retry)),
        ];
        for (headers, status, expected) in rows {
            assert_eq!(kind(Prior::Unknown, status, headers, b""), expected, "{status} {headers:?}");
        }
    }
}
