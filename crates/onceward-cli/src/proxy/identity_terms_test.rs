//! Tests of the tables of terms.

use super::*;
use crate::config::Settings;
use crate::proxy::{PathParameters, Spelling};

const RULES: PathRules = PathRules {
    normalise: true,
    case: Spelling::Exact,
    trailing_slash: Spelling::Exact,
    parameters: PathParameters::Refuse,
};

fn table(text: &str) -> TermsTable {
    TermsTable::of(&Settings::parse(text).unwrap().1)
}

fn terms(text: &str) -> Terms {
    Terms::of(&Settings::parse(text).unwrap().1.otherwise)
}

/// Every stored byte: a table that an earlier version wrote must be found by a later one.
#[test]
fn a_table_is_kept_as_json() {
    let written = table(
        "[[route]]\npath = \"/a/{id}\"\nmethods = [\"POST\"]\nscope = [\"header:X-Tenant\", \"jwt:sub\"]\n\
         anonymous = \"share\"\noperation = \"charge\"",
    );
    let json = "{\"routes\":[{\"path\":\"/a/{id}\",\"methods\":[\"POST\"],\"terms\":{\"scope\":[\"header:x-tenant\",\
                \"jwt:sub\"],\"anonymous\":\"share\",\"operation\":\"charge\",\
                \"key_from\":\"header:idempotency-key\"}}],\"otherwise\":{\"scope\":[\"auto\"],\
                \"anonymous\":null,\"operation\":null,\"key_from\":\"header:idempotency-key\"}}";
    assert_eq!(serde_json::to_string(&written).unwrap(), json);
    assert_eq!(serde_json::from_str::<TermsTable>(json).unwrap(), written);
    assert!(serde_json::from_str::<TermsTable>("{\"routes\":[]}").is_err());
}

/// The same for the rules about paths, which are left out where they are the default ones.
#[test]
fn rules_for_paths_are_kept_as_json() {
    let written = |rules| serde_json::to_string(&table("").with_path_rules(rules).paths).unwrap();
    assert_eq!(written(RULES), "null");
    assert_eq!(written(PathRules { parameters: PathParameters::Exact, ..RULES }), "null");
    assert_eq!(
        written(PathRules { case: Spelling::Ignore, ..RULES }),
        "{\"normalise\":true,\"case_ignored\":true,\"trailing_slash_ignored\":false}"
    );
    assert_eq!(
        written(PathRules { parameters: PathParameters::Ignore, ..RULES }),
        "{\"normalise\":true,\"case_ignored\":false,\"trailing_slash_ignored\":false,\"parameters_ignored\":true}"
    );
}

#[test]
fn routes_that_change_no_terms_leave_the_table_as_it_is() {
    let none = table("");
    assert_eq!(table("[[route]]\npath = \"/a\"\nkey = \"required\"\nkeep = \"7d\""), none);
    assert!(!none.may_differ_from(&terms("")));
    assert_ne!(table("[[route]]\npath = \"/a\"\noperation = \"a\""), none);
    // One in front of another with the same paths decides.
    let first = "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/*\"\nscope = \"shared\"";
    assert_ne!(table(first), table("[[route]]\npath = \"/*\"\nscope = \"shared\""));
}

#[test]
fn a_request_has_the_terms_of_the_first_route_that_matched_it() {
    let kept = table(
        "[[route]]\npath = \"/a\"\nmethods = [\"POST\"]\nscope = \"shared\"\n\
         [[route]]\npath = \"/a\"\nscope = \"host\"",
    );
    let former = FormerTable::new(&kept, RULES).unwrap();
    let found = |method: Method, path| former.find(&method, path).1.scope.clone();
    assert_eq!(found(Method::POST, "/a"), [ScopeSource::Shared]);
    assert_eq!(found(Method::PATCH, "/a"), [ScopeSource::Host]);
    assert_eq!(found(Method::POST, "/b"), [ScopeSource::Auto]);
    assert!(kept.may_differ_from(&terms("")));
}
