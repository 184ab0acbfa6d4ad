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
fn a_piece_of_a_password_is_not_a_host() {
    assert_eq!(without_credentials("ret@db.example"), "db.example");
    assert_eq!(without_credentials("db.example"), "db.example");
}
