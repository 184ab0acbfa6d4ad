//! Tests of parsing addresses and naming servers in errors.

use super::*;

#[test]
fn a_server_is_named_without_its_password() {
    for (url, named) in [
        ("postgres://app:secret@db.example/shop", "PostgreSQL at db.example:5432, database `shop`"),
        ("postgres://app:secret@127.0.0.1:6543", "PostgreSQL at 127.0.0.1:6543, database `app`"),
        ("postgres://app@a,b:6000/shop", "PostgreSQL at a:5432 or b:6000, database `shop`"),
        ("host=/run/pg user=app dbname=shop", "PostgreSQL at /run/pg, port 5432, database `shop`"),
        ("hostaddr=10.0.0.1 port=7000 user=app", "PostgreSQL at 10.0.0.1:7000, database `app`"),
        // A password that was not encoded.
        ("postgres://app:s@cret@db/shop", "PostgreSQL (write `@` and `/` in a password as `%40` and `%2F`)"),
    ] {
        let (config, _) = parse(url).unwrap();
        assert_eq!(describe(&config), named);
    }
}

#[test]
fn an_address_that_cannot_be_read_is_explained_without_its_password() {
    let error = parse("postgres://app:secret@db:many/shop").err().unwrap().to_string();
    assert!(error.contains("postgres://user:password@host") && error.contains("port"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}
