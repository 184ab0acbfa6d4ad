//! What an error of the SDK means: its kind, what to do, and whether the write may have happened.

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use onceward::{Error, ErrorKind};

/// Whether a call could have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    Reads,
    Writes,
}

/// A call about this table failed. What the service refused was not done; without its answer that is unknown.
pub(super) fn failed<E, R>(table: &str, call: CallEffect, error: &SdkError<E, R>) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug,
{
    let (code, message) = match error {
        SdkError::ServiceError(answer) => (answer.err().code(), answer.err().message().unwrap_or_default()),
        _ => (None, ""),
    };
    let known =
        |kind, advice: &str| Error::new(kind, format!("DynamoDB table `{table}`: {advice}: {message}"));
    match code.unwrap_or_default() {
        "ProvisionedThroughputExceededException" | "ThrottlingException" | "RequestLimitExceeded" => known(
            ErrorKind::Unavailable,
            "it is asked more often than its capacity allows; raise that, or try again",
        ),
        "TransactionConflictException" | "TransactionInProgressException" => {
            known(ErrorKind::Unavailable, "another transaction is changing this item; try again")
        }
        "ResourceNotFoundException" => known(
            ErrorKind::Invalid,
            "there is no such table in this region and account; create it with `onceward migrate`",
        ),
        "AccessDeniedException" => known(
            ErrorKind::Invalid,
            "these credentials lack a right; the policy they need is in docs/stores.md",
        ),
        "ExpiredTokenException" | "ExpiredToken" => {
            known(ErrorKind::Invalid, "the credentials have expired; renew them")
        }
        "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationTokenException"
        | "InvalidClientTokenId" => {
            known(ErrorKind::Invalid, "the credentials are not accepted; correct them")
        }
        "ValidationException" | "SerializationException" => known(ErrorKind::Invalid, "it refused a request"),
        // The SDK has no code of its own for this; the request was not signed, and so not sent.
        "" if matches!(error, SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_))
            && DisplayErrorContext(error).to_string().contains("redential") =>
        {
            let detail = format!(
                "DynamoDB table `{table}`: no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile, or give the container or the instance a role"
            );
            Error::new(ErrorKind::Invalid, detail).caused_by(DisplayErrorContext(error).to_string())
        }
        _ => {
            let detail = format!("DynamoDB table `{table}`: no answer");
            let fault =
                Error::new(ErrorKind::Unavailable, detail).caused_by(DisplayErrorContext(error).to_string());
            let unsent = matches!(error, SdkError::ConstructionFailure(_));
            if call == CallEffect::Writes && !unsent { fault.maybe_applied() } else { fault }
        }
    }
}
