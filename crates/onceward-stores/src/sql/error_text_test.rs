//! Tests of error texts: causes are shown, passwords are not.

use super::*;

#[derive(Debug)]
struct Vague(io::Error);

impl fmt::Display for Vague {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("db error")
    }
}

impl StdError for Vague {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn the_cause_is_in_the_text_and_the_error_can_be_found() {
    let error = Vague(io::ErrorKind::ConnectionRefused.into());
    assert_eq!(root(&error).to_string(), "connection refused");
    assert_eq!(unreached("PostgreSQL at db:5432", &error), "cannot reach PostgreSQL at db:5432");
    let explained = Explained::new(root(&error).to_string(), error);
    assert_eq!(explained.to_string(), "connection refused");
    assert!(explained.source().unwrap().is::<Vague>());
    assert_eq!(unreached("PostgreSQL at db:5432", &fmt::Error), "cannot connect to PostgreSQL at db:5432");
}

#[test]
fn a_server_is_named_without_a_piece_of_a_password() {
    assert_eq!(server("MySQL", "db:3306", Some("shop")), "MySQL at db:3306, database `shop`");
    assert_eq!(server("MySQL", "db:3306", None), "MySQL at db:3306");
    assert_eq!(server("MySQL", "", Some("shop")), "MySQL, database `shop`");
    for (host, database) in [("ret@db:3306", None), ("app:3306", Some("ret@db/shop"))] {
        let named = server("MySQL", host, database);
        assert!(named.contains("%40") && !named.contains("ret"), "{named}");
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
#[test]
fn a_failure_of_an_open_store_names_its_server_once() {
    let lost =
        || Error::new(ErrorKind::Unavailable, "the connection failed").caused_by("reset").maybe_applied();
    let answers =
        named_answers("MySQL at db:1", Ok(vec![Swapped::Lost(None), Swapped::Failed(lost())])).unwrap();
    let [Swapped::Lost(None), Swapped::Failed(error)] = &answers[..] else { panic!("{answers:?}") };
    let text = "MySQL at db:1: the connection failed: reset (the write may have happened)";
    assert_eq!(error.to_string(), text);
    assert_eq!(named("MySQL at db:1", error.clone()).to_string(), text);
    // What is about a record is not about the server.
    let damaged = Error::new(ErrorKind::Damaged, "it cannot be read");
    assert_eq!(named("MySQL at db:1", damaged).to_string(), "it cannot be read");
}
