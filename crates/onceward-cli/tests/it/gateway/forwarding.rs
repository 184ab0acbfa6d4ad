//! What the gateway forwards to the service, and what it returns.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::stage::{Home, Reply, Service};

#[test]
fn every_retry_gets_the_first_answer() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&service.url());
    let first = gateway.charge("a", "{\"amount\":1}");
    assert_eq!((first.status, first.body.as_str()), (201, "{\"charge\":1}"));
    assert_eq!(first.field("idempotent-replayed"), None);
    assert!(first.field("idempotency-expires").is_some());
    for _ in 0..3 {
        let again = gateway.charge("\"a\"", "{ \"amount\": 1.0 }");
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.field("idempotent-replayed"), Some("true"));
        assert_eq!(again.field("content-type"), first.field("content-type"));
    }
    assert_eq!(gateway.charge("a", "{\"amount\":2}").problem(), (422, "key-reused".into()));
    let other = gateway.post("/charges", &[("Idempotency-Key", "a"), ("Authorization", "Bearer b")], "{}");
    assert_eq!(other.status, 201, "another tenant's key is another key");
    assert_eq!(service.effects(), 2);
}

#[test]
fn without_a_key_everything_passes_and_is_counted() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&service.url());
    for count in 1..=2 {
        let answer = gateway.post("/charges", &[], "{}");
        assert_eq!(answer.body, format!("{{\"charge\":{count}}}"));
        assert_eq!(answer.field("idempotency-expires"), None);
    }
    assert_eq!(gateway.get("/charges").status, 201);
    assert!(gateway.metric("onceward_http_requests_keyless_total") >= 2.0);
}

#[test]
fn the_service_gets_fence_attempt_and_origin_and_no_hop_by_hop_fields() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&service.url());
    let fields = [
        ("Idempotency-Key", "a"),
        ("Authorization", "Bearer a"),
        ("Onceward-Fence", "99999999999999999999"),
        ("Onceward-Attempt", "mine"),
        ("X-Hop", "1"),
        ("Connection", "X-Hop"),
        ("X-End", "2"),
    ];
    // `send` says `Connection: close` as well.
    gateway.post("/charges?x=%20y", &fields, "{\"amount\":1}");
    let [request] = &service.received()[..] else { panic!("one request") };
    assert_eq!(request.line, "POST /charges?x=%20y HTTP/1.1");
    assert_eq!(request.body, b"{\"amount\":1}");
    assert_eq!(request.field("x-end"), Some("2"));
    assert_eq!(request.field("x-hop"), None);
    assert_eq!(request.field("connection"), None);
    assert_eq!(request.field("host"), Some("pay.example"));
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.key(), "a");
    let fence: u64 = request.field("onceward-fence").unwrap().parse().unwrap();
    assert!(fence > 0);
    assert_eq!(request.field("onceward-attempt").unwrap().len(), 32);
}

#[test]
fn the_key_is_forwarded_unchanged_derived_or_removed() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(
        "[[route]]\npath = \"/derived\"\nforward_key = \"derived\"\n\
         [[route]]\npath = \"/stripped\"\nforward_key = \"stripped\"\n",
    );
    let gateway = home.start(&service.url());
    for path in ["/same", "/derived", "/stripped"] {
        assert_eq!(gateway.post(path, &[("Idempotency-Key", "\"k\"")], "{}").status, 201);
    }
    let keys: Vec<_> = service.received().iter().map(|request| request.key().to_owned()).collect();
    assert_eq!(keys[0], "\"k\"");
    assert_eq!(keys[1].len(), 38, "a UUID in quotes: {}", keys[1]);
    assert_eq!(keys[2], "");
}

#[test]
fn a_service_behind_a_path_is_reached_there() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&format!("{}/api/v2/", service.url()));
    gateway.charge("a", "{}");
    assert_eq!(service.received()[0].line, "POST /api/v2/charges HTTP/1.1");
}

#[test]
fn large_bodies_of_unguarded_requests_are_streamed() {
    const BYTES: usize = 8 << 20;
    let service = Service::start(|request| Reply::Answer(200, "x".repeat(request.body.len())));
    let home = Home::new();
    let gateway = home.start(&service.url());
    let answer = gateway.post("/upload", &[], &"y".repeat(BYTES));
    assert_eq!((answer.status, answer.body.len()), (200, BYTES));
}

#[test]
fn a_response_over_the_limit_is_forwarded_and_not_stored() {
    let service = Service::start(|_| Reply::created("x".repeat(3000)));
    let home = Home::new();
    home.write_config("[defaults]\nresponse_bytes_max = \"1KiB\"");
    let gateway = home.start(&service.url());
    let first = gateway.charge("a", "{}");
    assert_eq!((first.status, first.body.len()), (201, 3000));
    let again = gateway.charge("a", "{}");
    assert_eq!(again.problem(), (409, "response-not-stored".into()));
    assert_eq!(again.json()["original_status"], 201);
    assert_eq!(service.effects(), 1);
}

#[test]
fn an_upgraded_connection_passes_through() {
    let switch =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello"
            .to_vec();
    let service = Service::start(move |request| match request.field("upgrade") {
        Some("websocket") => Reply::Raw(switch.clone()),
        _ => Reply::Answer(400, String::new()),
    });
    let home = Home::new();
    let gateway = home.start(&service.url());
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let ask = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    socket.write_all(ask.as_bytes()).unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 101"), "{said}");
    assert!(said.to_lowercase().contains("upgrade: websocket"), "{said}");
    assert!(said.ends_with("\r\n\r\nhello"), "{said}");
}

#[test]
fn the_policy_is_published() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("[[route]]\npath = \"/charges\"\nkey = \"required\"\nkeep = \"7d\"");
    let gateway = home.start(&service.url());
    let policy = gateway.get("/.well-known/idempotency");
    assert_eq!((policy.status, policy.field("content-type")), (200, Some("application/json")));
    assert!(policy.body.contains("/charges"), "{}", policy.body);
    let openapi = gateway.get("/.well-known/idempotency?format=openapi");
    assert!(openapi.json()["paths"]["/charges"]["post"].is_object(), "{}", openapi.body);
    assert_eq!(gateway.post("/.well-known/idempotency", &[], "").status, 405);
    assert_eq!(service.effects(), 0);
    assert_eq!(gateway.post("/charges", &[], "{}").problem(), (400, "key-missing".into()));
}
