//! Runs `onceward verify`: effects that a database counts, several endpoints in one table, descriptions, and clients.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gateway::stage::{Reply, Service};
use crate::process::onceward;
use crate::servers::{self, MariaDb, Postgres};

/// A service that answers each key with its first answer, and each request with a new one where `deduplicates` is false.
/// `effect` happens once for each answer.
fn charging(deduplicates: bool, effect: impl Fn() + Send + Sync + 'static) -> Service {
    let answers = Mutex::new(HashMap::new());
    let count = Mutex::new(0);
    Service::start(move |request| {
        let mut answers = answers.lock().unwrap();
        if request.line.starts_with("GET /count") {
            return Reply::Answer(200, count.lock().unwrap().to_string());
        }
        if let Some(answer) = answers.get(request.key()).filter(|_| deduplicates) {
            return Reply::created(String::clone(answer));
        }
        effect();
        *count.lock().unwrap() += 1;
        let answer = format!("{{\"charge\":{}}}", count.lock().unwrap());
        answers.insert(request.key().to_owned(), answer.clone());
        Reply::created(answer)
    })
}

/// What a run ended with and printed.
struct Verified {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn verify(more: &[&str]) -> Verified {
    let mut command: Command = onceward(&["verify", "--clients", "4", "--rounds", "2"]);
    let Output { status, stdout, stderr } = command.args(more).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Verified { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// One scenario, with the effects that a query counts: it holds, and of a service that deduplicates nothing it is violated by
/// what the query counts.
fn judged_by_sql(database: &str, effect: impl Fn() + Clone + Send + Sync + 'static) {
    for deduplicates in [true, false] {
        let service = charging(deduplicates, effect.clone());
        let url = format!("{}/charges", service.url());
        let query = "select count(*) from charges";
        let line = ["--url", &url, "--scenario", "retry-after-success", "--effects-sql", database, query];
        let run = verify(&line);
        let said = format!("{}{}", run.stdout, run.stderr);
        if deduplicates {
            assert!(run.code == Some(0) && !said.contains("holds *"), "{said}");
        } else {
            assert!(run.code == Some(1) && said.contains("3 sendings of one key had 3 effects"), "{said}");
        }
    }
}

#[test]
fn effects_are_counted_in_postgresql() {
    let Some(server) = Postgres::shared() else { return };
    let name = server.fresh();
    server.sql(&name, "CREATE TABLE charges (at timestamptz DEFAULT now())");
    let (database, into) = (server.url(&name), name);
    judged_by_sql(&database, move || {
        server.sql(&into, "INSERT INTO charges DEFAULT VALUES");
    });
}

#[test]
fn effects_are_counted_in_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    let name = server.fresh();
    server.sql(&name, "CREATE TABLE charges (id INTEGER PRIMARY KEY AUTO_INCREMENT)");
    let (database, into) = (server.url(&name), name);
    judged_by_sql(&database, move || {
        server.sql(&into, "INSERT INTO charges VALUES ()");
    });
}

#[test]
fn effects_are_counted_in_sqlite() {
    if Command::new("sqlite3").arg("-version").output().is_err() {
        servers::skip("sqlite3");
        return;
    }
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("charges.db");
    let sql = move |sql: &str| {
        let output = Command::new("sqlite3").args(["-batch", "-bail"]).arg(&file).arg(sql).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    sql("CREATE TABLE charges (id INTEGER PRIMARY KEY)");
    let database = format!("sqlite:{}", folder.path().join("charges.db").display());
    judged_by_sql(&database, move || sql("INSERT INTO charges DEFAULT VALUES"));
}

/// Several endpoints and seeds are one table, in which no password of a URL is, nor in what is said beside it.
#[test]
fn several_endpoints_are_one_table_without_their_passwords() {
    let (sound, broken) = (charging(true, || {}), charging(false, || {}));
    let with_password = |service: &Service| service.url().replace("http://", "http://anna:s3cr3t@");
    let urls = [&sound, &broken].map(|service| format!("{}/charges", with_password(service)));
    let shown = urls.clone().map(|url| url.replace("s3cr3t", "…"));
    // Nothing listens at the discard port.
    let gone = "http://anna:s3cr3t@127.0.0.1:9/charges";
    let some = ["--scenario", "retry-after-success", "--seeds", "2"];
    let all = ["--url", &urls[0], "--url", &urls[1], "--url", gone];
    let run = verify(&[&all[..], &some, &["--format", "markdown"]].concat());
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains(&format!("| scenario | {} | {} |", shown[0], shown[1])), "{}", run.stdout);
    assert!(run.stdout.contains("| retry-after-success | H | **V** |"), "{}", run.stdout);
    assert!(run.stdout.contains("seeds 0, 1, 20") && run.stdout.contains(" UTC, onceward"), "{}", run.stdout);
    assert!(run.stdout.contains("\n1 violated (each scenario by its worst seed).\n"), "{}", run.stdout);
    assert!(run.stderr.contains("anna:…@127.0.0.1:9/charges, seed 1"), "{}", run.stderr);
    for more in [&["--format", "text"][..], &["--format", "json"], &["--format", "markdown"], &["--dry-run"]]
    {
        let run = verify(&[&all[..], &some, more].concat());
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains("anna:…@") && !said.contains("s3cr3t"), "{said}");
    }
}

#[test]
fn reports_of_earlier_runs_become_one_table() {
    let (sound, broken) = (charging(true, || {}), charging(false, || {}));
    let folder = TempDir::new().unwrap();
    let report = |service: &Service, seed: &str, name: &str| {
        let path = folder.path().join(name).display().to_string();
        let url = format!("{}/charges", service.url());
        let some = ["--scenario", "retry-after-success", "--format", "json", "--output", &path];
        let run = verify(&[&["--url", &url, "--seed", seed][..], &some].concat());
        assert!(run.stdout.is_empty(), "{}", run.stdout);
        path
    };
    let files = [
        format!("one={}", report(&sound, "0", "a.json")),
        format!("one={}", report(&broken, "1", "b.json")),
        format!("two={}", report(&broken, "0", "c.json")),
    ];
    let merged = onceward(&["verify", "--merge"]).args(&files).output().unwrap();
    let table = String::from_utf8_lossy(&merged.stdout);
    assert_eq!(merged.status.code(), Some(0), "{table}");
    assert!(table.contains("| scenario | one | two |"), "{table}");
    assert!(table.contains("| retry-after-success | **V** 1/2 | **V** |"), "{table}");
}

const DESCRIPTION: &str = "
openapi: 3.1.0
paths:
  /charges:
    post:
      parameters: [{name: Idempotency-Key, in: header, required: true}]
      requestBody:
        content:
          application/json:
            schema: {required: [amount], properties: {amount: {type: integer, minimum: 5}}}
  /refunds:
    post: {}
";

#[test]
fn described_operations_are_judged_and_those_without_a_key_are_listed() {
    let service = charging(true, || {});
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("openapi.yaml");
    std::fs::write(&file, DESCRIPTION).unwrap();
    let (file, effects) = (file.display().to_string(), format!("{}/count", service.url()));
    let url = service.url();
    let line = ["--discover", &file, "--url", &url, "--effects-url", &effects];
    let line = [&line[..], &["--scenario", "retry-after-success"]].concat();
    let run = verify(&[&line[..], &["--format", "json"]].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["without_key"], json!(["POST /refunds"]), "{}", run.stdout);
    assert_eq!(report["reports"].as_array().unwrap().len(), 1);
    assert_eq!(report["reports"][0]["findings"][0]["verdict"], "holds", "{}", run.stdout);
    assert!(run.stderr.contains("1 change something and declare none: POST /refunds"), "{}", run.stderr);
    let run = verify(&[&line[..], &["--format", "markdown"]].concat());
    let listed = "### Operations that declare no key\n\n* `POST /refunds`";
    assert!(
        run.stdout.contains("| retry-after-success | H |") && run.stdout.contains(listed),
        "{}",
        run.stdout
    );
    let sent = service.received();
    let posts: Vec<_> = sent.iter().filter(|request| request.line.starts_with("POST")).collect();
    assert!(!posts.is_empty());
    for post in posts {
        assert!(post.line.starts_with("POST /charges "), "{}", post.line);
        assert_eq!(post.body, br#"{"amount":5}"#);
    }
}

/// `onceward send` as the client that is judged, with a journal for each intent, since one process at a time may hold it.
fn send(folder: &Path) -> String {
    let journal = folder.join("journal-{intent}").display().to_string();
    let program = env!("CARGO_BIN_EXE_onceward");
    format!(
        "exec '{program}' send --url {{url}} --body '{{}}' --journal {journal} --intent {{intent}} --at-most 20"
    )
}

#[test]
fn our_own_client_passes_and_one_without_a_key_does_not() {
    let folder = TempDir::new().unwrap();
    let own = send(folder.path());
    let some = ["--scenario", "same-key", "--scenario", "key-per-intent", "--scenario", "survives-kill"];
    let run = verify(&[&["--client-cmd", &own][..], &some].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    let keyless = "curl -s -o /dev/null -d '{}' \"$ONCEWARD_URL\"";
    let run = verify(&[&["--client-cmd", keyless][..], &some[..2]].concat());
    assert!(run.code == Some(1) && run.stdout.contains("it sends no key"), "{}{}", run.stdout, run.stderr);
}
