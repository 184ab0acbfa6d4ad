use super::SqlClient;

#[test]
fn a_password_is_in_no_argument() {
    for url in ["postgres://anna:s3cr3t@db:5433/shop", "mysql://anna:s3cr3t@db:3307/shop"] {
        let client = SqlClient::read(url).unwrap();
        let arguments = client.arguments.join(" ");
        assert!(!arguments.contains("s3cr3t") && arguments.contains("shop"), "{arguments}");
        assert!(arguments.contains("anna"), "{arguments}");
        assert_eq!(client.environment[0].1, "s3cr3t");
    }
    assert_eq!(SqlClient::read("sqlite:///tmp/a.db").unwrap().arguments, ["-batch", "/tmp/a.db"]);
    assert_eq!(SqlClient::read("sqlite:a.db").unwrap().arguments, ["-batch", "a.db"]);
    for url in ["oracle://db/x", "db", ""] {
        assert!(SqlClient::read(url).is_err(), "{url:?} was taken");
    }
}

#[test]
fn what_is_percent_encoded_is_decoded() {
    let client = SqlClient::read("mysql://an%20na:s%3Acr%40t%2f%C3%A9@db/my%2Dshop?ssl=1").unwrap();
    assert_eq!(client.environment[0].1, "s:cr@t/é");
    assert!(
        client.arguments.contains(&"an na".to_owned()) && client.arguments.contains(&"my-shop".to_owned())
    );
    let client = SqlClient::read("postgres://an%20na:100%25%@db/shop").unwrap();
    assert_eq!(client.environment[0].1, "100%%");
    assert!(client.arguments.contains(&"postgresql://an%20na@db/shop".to_owned()), "psql decodes it itself");
}

/// A number is read by a real client, if it is installed.
#[tokio::test]
async fn a_number_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let client = SqlClient::read(&format!("sqlite:{}", folder.path().join("a.db").display())).unwrap();
    if std::process::Command::new("sqlite3").arg("-version").output().is_err() {
        println!("there is no sqlite3 here");
        return;
    }
    assert_eq!(client.ask("select 40 + 2").await.unwrap().trim(), "42");
    assert!(client.ask("select nothing from nowhere").await.is_err());
}
