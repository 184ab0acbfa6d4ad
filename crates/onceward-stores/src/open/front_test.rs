use super::take;

#[track_caller]
fn splits(url: &str, store: &str, front: Option<&str>) {
    assert_eq!(take(url).unwrap(), (store.to_owned(), front.map(str::to_owned)), "{url}");
}

#[test]
fn a_front_at_the_end_needs_no_encoding() {
    let store = "postgres://u@h/db";
    splits(store, store, None);
    splits("postgres://u@h/db?front=redis://r:6379/0", store, Some("redis://r:6379/0"));
    splits(
        "postgres://u@h/db?sslmode=require&front=rediss://r/0?prefix=x&sslrootcert=/ca.pem",
        "postgres://u@h/db?sslmode=require",
        Some("rediss://r/0?prefix=x&sslrootcert=/ca.pem"),
    );
    splits("postgres://u@h/db?sslmode=require", "postgres://u@h/db?sslmode=require", None);
}

#[test]
fn an_encoded_front_may_be_anywhere() {
    splits(
        "mysql://u@h/db?front=redis%3A%2F%2F:a%26b@r%2F0&sslmode=require",
        "mysql://u@h/db?sslmode=require",
        Some("redis://:a&b@r/0"),
    );
}

#[test]
fn an_empty_front_is_refused() {
    for url in ["postgres://h/db?front=", "postgres://h/db?front=&sslmode=require"] {
        assert!(take(url).unwrap_err().to_string().contains("front=redis://"));
    }
}
